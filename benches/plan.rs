//! Planning a compaction of a large upsert table: time and memory of the plan itself, and of the check before it runs.
//!
//! `cargo bench --bench plan`; `PLAN_FILES` sets the number of data files (default 100000), `PLAN_PARTITIONS` that of bucket
//! partitions (default 5), `PLAN_DELETES` that of equality delete files (default a tenth of the data files).
//! The input's own memory is shown apart, as the resident set before planning.

use std::sync::Arc;
use std::time::{Duration, Instant};

use iceberg::spec::{DataContentType, Literal};
use icewright::plan::{check_rewrite_plan, plan_rewrite_data_files};
use icewright::policy::{
    CommitInterval, ExpireSnapshotsPolicy, RemoveOrphanFilesPolicy, RewriteDataFilesPolicy, Schedule, Span, TablePolicy,
};
use icewright::table::LoadedTable;
use icewright::table::{FileEntry, PartitionTuple, TableState};
use icewright::testing::builder::{file_entry, metadata};
use serde_json::json;

fn main() {
    let files = setting("PLAN_FILES", 100_000);
    let partitions = setting("PLAN_PARTITIONS", 5).max(1);
    let deletes = setting("PLAN_DELETES", files / 10);
    let state = state(files, partitions, deletes);
    let before = resident_mib();
    for rewrite_all in [false, true] {
        let policy = policy(rewrite_all);
        let start = Instant::now();
        let plan = plan_rewrite_data_files(&state, &policy, Duration::from_secs(600), 0).expect("plannable");
        let planned = start.elapsed();
        let during = resident_mib();
        let start = Instant::now();
        check_rewrite_plan(&plan, &state, &policy.rewrite_data_files).expect("sound");
        let checked = start.elapsed();
        let attached: usize = plan.groups.iter().flat_map(|g| &g.tasks).map(|task| task.delete_files.len()).sum();
        println!(
            "rewrite-all {rewrite_all}: {files} data files, {deletes} delete files, {partitions} partitions -> \
             {} groups, {attached} pairs of data and delete file; planned in {planned:.1?}, checked in {checked:.1?}; \
             resident {before} MiB before, {during} MiB with the plan",
            plan.groups.len(),
        );
    }
    println!("peak resident {} MiB", status_mib("VmHWM:"));
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn resident_mib() -> u64 {
    status_mib("VmRSS:")
}

/// A figure of `/proc/self/status`; 0 where there is none.
fn status_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib / 1024)
}

/// Files of 6 MiB, one per partition and commit; deletes spread evenly over the commits.
fn state(files: usize, partitions: usize, deletes: usize) -> TableState {
    let tuple = |bucket: usize| {
        let value = Literal::int(i32::try_from(bucket).expect("few buckets"));
        Arc::new(PartitionTuple { spec_id: 0, values: std::iter::once(Some(value)).collect() })
    };
    let tuples: Vec<Arc<PartitionTuple>> = (0..partitions).map(tuple).collect();
    let commits = files.div_ceil(partitions).max(1);
    let entry = |number: usize, content: DataContentType, commit: usize| {
        let sequence = i64::try_from(commit + 1).expect("few commits");
        let kind = if content == DataContentType::Data { "data" } else { "eq" };
        let path = format!("s3://lake/cdc/orders/data/id_bucket={}/{kind}-{number:010}.parquet", number % partitions);
        Arc::new(FileEntry {
            content,
            partition: tuples[number % partitions].clone(),
            data_sequence_number: sequence,
            file_sequence_number: Some(sequence),
            snapshot_id: sequence,
            equality_ids: if content == DataContentType::Data { Vec::new() } else { vec![1] },
            ..file_entry(&path, 60_000, 6 << 20)
        })
    };
    let loaded = Arc::new(loaded(partitions, commits));
    TableState {
        snapshot: loaded.current_snapshot().cloned(),
        loaded,
        manifests: Vec::new(),
        data_files: (0..files).map(|n| entry(n, DataContentType::Data, n / partitions)).collect(),
        delete_files: (0..deletes).map(|n| entry(n, DataContentType::EqualityDeletes, n * commits / deletes)).collect(),
    }
}

fn loaded(partitions: usize, commits: usize) -> LoadedTable {
    let metadata = metadata(json!({
        "location": "s3://lake/cdc/orders", "last-sequence-number": commits, "last-updated-ms": 1_700_000_000_000_i64,
        "partition-specs": [{"spec-id": 0, "fields": [
            {"source-id": 1, "field-id": 1000, "name": "id_bucket", "transform": format!("bucket[{partitions}]")}
        ]}],
        "last-partition-id": 1000, "current-snapshot-id": 1, "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
        "snapshots": [{
            "snapshot-id": 1, "sequence-number": commits, "timestamp-ms": 1_700_000_000_000_i64,
            "manifest-list": "s3://lake/cdc/orders/metadata/snap-1.avro", "schema-id": 0, "summary": {"operation": "append"}
        }],
    }));
    LoadedTable::from_metadata_json("s3://lake/cdc/orders/metadata/v1.json".into(), &metadata).expect("valid metadata")
}

fn policy(rewrite_all: bool) -> TablePolicy {
    TablePolicy {
        commit_interval: CommitInterval::Auto,
        schedule: Schedule::Every(Duration::from_secs(3600)),
        time_zone: "UTC".to_string(),
        delay: Span::Intervals(3.0),
        rewrite_data_files: RewriteDataFilesPolicy {
            rewrite_all,
            target_file_size_bytes: Some(256 << 20),
            ..RewriteDataFilesPolicy::default()
        },
        expire_snapshots: ExpireSnapshotsPolicy::default(),
        remove_orphan_files: RemoveOrphanFilesPolicy::default(),
    }
}
