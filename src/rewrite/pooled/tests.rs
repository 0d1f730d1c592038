use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use arrow::array::{ArrayRef, Int64Array};
use iceberg::spec::{Literal, PrimitiveLiteral};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::plan::FileGroup;
use crate::rewrite::delete_mask::GroupDeletes;
use crate::rewrite::group::output_settings;
use crate::rewrite::reader::ReadTarget;
use crate::rewrite::schema::arrow_schema;
use crate::rewrite::writer::OwnOutputs;
use crate::rewrite::{MemoryBudget, Progress, RewriteContext};
use crate::run_id::RunId;
use crate::testing::MemoryStore;
use crate::testing::builder::loaded;

/// A rewrite of a table of the columns `id` and `k`, partitioned by the identity of `k`, that has no inputs yet.
fn work() -> Work {
    let long = |id: i32, name: &str| json!({"id": id, "name": name, "type": "long", "required": false});
    let loaded = loaded(json!({
        "location": "mem://lake/t", "last-sequence-number": 1, "last-column-id": 2,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [long(1, "id"), long(2, "k")]}], "last-partition-id": 1000,
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "k", "transform": "identity"}]}],
        "properties": {"write.parquet.compression-codec": "uncompressed"},
    }));
    let ctx = RewriteContext {
        store: Arc::new(MemoryStore::new()),
        loaded: Arc::new(loaded),
        run_id: RunId(SystemClock.uuid()),
        memory: Arc::new(MemoryBudget::new(1 << 30)),
        cancel: CancellationToken::new(),
        threads: 1,
        progress: Arc::new(Progress::default()),
    };
    let group = FileGroup {
        index: 0,
        partition: None,
        output_spec_id: 0,
        tasks: Vec::new(),
        input_bytes: 0,
        expected_output_files: 1,
        input_split_size_bytes: 1 << 30,
        write_max_file_size_bytes: 1 << 30,
    };
    let metadata = Arc::clone(ctx.loaded.typed().expect("readable"));
    let fields = metadata.current_schema().as_struct().fields().to_vec();
    Work {
        store: Arc::clone(&ctx.store),
        inputs: Vec::new(),
        target: ReadTarget { own: fields.len(), fields, mapping: None, all_present: false },
        large: std::collections::HashMap::new(),
        deletes: GroupDeletes::default(),
        output: Arc::new(output_settings(&ctx, &group, &Arc::new(OwnOutputs::default())).expect("valid")),
        cancel: ctx.cancel.clone(),
        progress: Arc::clone(&ctx.progress),
        rows_read: AtomicU64::new(0),
        rows_deleted: AtomicU64::new(0),
        metadata,
    }
}

fn batch(work: &Work, ids: std::ops::Range<i64>, partitions: i64) -> RecordBatch {
    let schema = arrow_schema(work.metadata.current_schema().as_struct().fields());
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id % partitions)));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_new(schema.expect("an Arrow schema"), vec![ids, keys]).expect("two columns")
}

/// What came of batches of 1,000 rows each, spread over `partitions`.
struct Routed {
    files: usize,
    rows: u64,
    most_files: usize,
    gatherings: u64,
}

/// Routes `batches` of them, and holds the memory against the limit after each.
fn route_all(batches: i64, partitions: i64, buffer_bytes: u64) -> Routed {
    let work = work();
    let spec = Arc::clone(work.metadata.default_partition_spec());
    let partitioner = Partitioner::new(&spec, work.metadata.current_schema().as_struct()).expect("valid");
    let limits = RouterLimits { buffer_bytes, target_file_bytes: 1 << 30 };
    let mut router = PartitionRouter::new(&work, spec, partitioner, limits);
    let mut gatherings = 0;
    for number in 0..batches {
        router.write(batch(&work, number * 1000..(number + 1) * 1000, partitions)).expect("written");
        let held: u64 = router.writers.values().map(|w| w.memory_bytes()).map(|(group, file)| group + file).sum();
        assert!(held <= buffer_bytes, "{held} bytes of {buffer_bytes} after batch {number}");
        assert!(router.gathered_bytes <= buffer_bytes / 2 + (1 << 15), "{} bytes gathered", router.gathered_bytes);
        assert!(router.writers.len() <= MAX_OPEN_WRITERS);
        gatherings += u64::from(router.gathered.is_empty());
    }
    router.close_all().expect("closed");
    let mut per_partition: BTreeMap<i64, usize> = BTreeMap::new();
    for file in &router.files {
        let [Some(Literal::Primitive(PrimitiveLiteral::Long(key)))] = file.data_file.partition().fields() else {
            panic!("{:?}", file.data_file.partition())
        };
        *per_partition.entry(*key).or_default() += 1;
    }
    assert_eq!(per_partition.len() as i64, partitions.min(batches * 1000));
    Routed {
        files: router.files.len(),
        rows: router.files.iter().map(|f| f.data_file.record_count()).sum(),
        most_files: per_partition.values().copied().max().unwrap_or(0),
        gatherings: gatherings + 1,
    }
}

async fn routed(batches: i64, partitions: i64, buffer_bytes: u64) -> Routed {
    tokio::task::spawn_blocking(move || route_all(batches, partitions, buffer_bytes)).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_stay_within_their_memory_and_lose_no_row() {
    let routed = routed(40, 100, 1 << 20).await;
    assert_eq!(routed.rows, 40_000);
    assert!(routed.files >= 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_gathering_costs_a_partition_one_file_at_most() {
    let routed = routed(60, 400, 4 << 20).await;
    assert_eq!(routed.rows, 60_000);
    assert!(routed.gatherings < 60, "rows are gathered once writers are scarce");
    assert!(
        routed.most_files as u64 <= routed.gatherings + 1,
        "{} files in {} gatherings",
        routed.most_files,
        routed.gatherings
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn with_enough_writers_and_memory_each_partition_is_one_file() {
    let routed = routed(20, 256, 1 << 30).await;
    assert_eq!((routed.rows, routed.files, routed.most_files), (20_000, 256, 1));
}
