//! The planner and the real writer together: what a run has written is not taken up again.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use icewright::plan::{RewritePlan, check_rewrite_plan, plan_rewrite_data_files};
use icewright::policy::{RewriteDataFilesPolicy, TablePolicy};
use icewright::table::{FileEntry, TableState};
use icewright::testing::builder::file_entry;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::table::{Table, batch, longs, parquet_with};

const TARGET: u64 = 1 << 20;

/// A table with data files of given sizes.
struct Lake {
    table: Table,
    data: Vec<Arc<FileEntry>>,
    deletes: Vec<Arc<FileEntry>>,
    runs: u32,
}

/// Rows of about 512 bytes of text that compresses to half.
fn rows(count: usize, seed: u64) -> RecordBatch {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = || {
        let mut text = String::with_capacity(512);
        while text.len() < 512 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            text.push_str(&format!("{state:016x}"));
        }
        text
    };
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..count).map(|_| text())));
    batch(vec![(1, "id", longs(0..i64::try_from(count).expect("few rows"))), (2, "s", texts)])
}

impl Lake {
    /// `sizes` in hundredths of the target. Files are written with `input`, outputs with the codec `output`.
    fn new(sizes: &[u64], input: Compression, output: &str) -> Self {
        let fields = json!([
            {"id": 1, "name": "id", "type": "long", "required": false},
            {"id": 2, "name": "s", "type": "string", "required": false},
        ]);
        let table = Table::new(fields).property("write.parquet.compression-codec", output);
        let properties = WriterProperties::builder().set_compression(input).set_dictionary_enabled(false).build();
        // A compressed file has twice the rows.
        let row_bytes = if input == Compression::UNCOMPRESSED { 524 } else { 290 };
        let mut data = Vec::new();
        for (number, hundredths) in sizes.iter().enumerate() {
            let count = usize::try_from((TARGET * hundredths / 100 / row_bytes).max(1)).expect("few rows");
            let bytes = parquet_with(&rows(count, number as u64 + 1), properties.clone());
            data.push(Arc::new(table.raw(&format!("f{number:03}"), &bytes, count as u64, number as i64 + 1)));
        }
        Self { table, data, deletes: Vec::new(), runs: 0 }
    }

    fn plan(&self, options: &RewriteDataFilesPolicy) -> RewritePlan {
        let (data_files, delete_files) = (self.data.clone(), self.deletes.clone());
        let loaded = self.table.context().loaded;
        let state = TableState { loaded, snapshot: None, manifests: Vec::new(), data_files, delete_files };
        let policy = TablePolicy { rewrite_data_files: options.clone(), ..TablePolicy::default() };
        let plan = plan_rewrite_data_files(&state, &policy, Duration::from_secs(60), 0).expect("plannable");
        check_rewrite_plan(&plan, &state, options).expect("sound");
        plan
    }

    /// Carries a plan out; files and bytes that went in and came out, by group.
    async fn run(&mut self, plan: &RewritePlan) -> Vec<(Vec<u64>, Vec<u64>)> {
        self.runs += 1;
        let mut groups = Vec::new();
        for group in &plan.groups {
            let result = self.table.rewrite(group).await.expect("a rewrite that succeeds");
            let gone: Vec<&str> = result.rewritten.iter().map(|file| &*file.file_path).collect();
            self.data.retain(|file| !gone.contains(&&*file.file_path));
            self.deletes
                .retain(|delete| delete.referenced_data_file.as_deref().is_none_or(|path| !gone.contains(&path)));
            for file in &result.added {
                let entry = file_entry(file.file_path(), file.record_count(), file.file_size_in_bytes());
                let sequence = 1000 + i64::from(self.runs);
                self.data.push(Arc::new(FileEntry {
                    data_sequence_number: 1000,
                    file_sequence_number: Some(sequence),
                    ..entry
                }));
            }
            let inputs = result.rewritten.iter().map(|file| file.file_size_bytes).collect();
            groups.push((inputs, result.added.iter().map(|file| file.file_size_in_bytes()).collect()));
        }
        groups
    }
}

fn options() -> RewriteDataFilesPolicy {
    RewriteDataFilesPolicy { target_file_size_bytes: Some(TARGET), ..RewriteDataFilesPolicy::default() }
}

/// Sizes in hundredths of the target.
fn in_hundredths(bytes: &[u64]) -> Vec<u64> {
    bytes.iter().map(|bytes| bytes * 100 / TARGET).collect()
}

#[tokio::test]
async fn two_files_of_two_thirds_of_the_target_stay_two_files() {
    let lake = Lake::new(&[67, 67], Compression::UNCOMPRESSED, "uncompressed");
    for rewrite_all in [false, true] {
        let plan = lake.plan(&RewriteDataFilesPolicy { rewrite_all, ..options() });
        assert!(plan.is_empty() && plan.skipped[0].reason == "already_compacted", "{plan}");
    }
}

#[tokio::test]
async fn outputs_are_filled_to_the_target() {
    for (sizes, expected) in [
        (vec![68; 3], vec![102, 102]),
        (vec![50; 5], vec![100, 100, 50]),
        (vec![10; 21], vec![105, 105]),
        (vec![70; 10], vec![100; 7]),
    ] {
        let mut lake = Lake::new(&sizes, Compression::UNCOMPRESSED, "uncompressed");
        let plan = lake.plan(&options());
        let outputs = in_hundredths(&lake.run(&plan).await[0].1);
        let near = outputs.iter().zip(&expected).all(|(is, should)| is.abs_diff(*should) <= 25);
        assert!(near && outputs.len() == expected.len(), "{sizes:?} became {outputs:?} instead of {expected:?}");
        assert_eq!(lake.plan(&options()).groups.len(), 0, "{outputs:?}");
    }
}

/// Half the bytes come out of an uncompressed input, twice as many the other way round.
#[tokio::test]
async fn another_codec_changes_how_many_files_come_out_and_not_how_full_they_are() {
    for (input, output) in
        [(Compression::UNCOMPRESSED, "zstd"), (Compression::ZSTD(ZstdLevel::default()), "uncompressed")]
    {
        let mut lake = Lake::new(&[60; 16], input, output);
        let plan = lake.plan(&options());
        let outputs = in_hundredths(&lake.run(&plan).await[0].1);
        let full = outputs.iter().filter(|size| (75..=140).contains(*size)).count();
        assert!(full + 1 >= outputs.len() && outputs.len() > 2, "{outputs:?} with {output}");
        assert_eq!(lake.plan(&options()).groups.len(), 0, "{outputs:?}");
    }
}

#[tokio::test]
async fn a_file_whose_only_row_is_larger_than_the_maximum_is_left_alone() {
    let text = "x".repeat(usize::try_from(3 * TARGET).expect("small"));
    let huge: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
    let table = Table::new(json!([{"id": 2, "name": "s", "type": "string", "required": false}]));
    let plain = WriterProperties::builder().set_dictionary_enabled(false).build();
    let bytes = parquet_with(&batch(vec![(2, "s", huge)]), plain);
    assert!(bytes.len() as u64 > 2 * TARGET);
    let data = vec![Arc::new(table.raw("huge", &bytes, 1, 1))];
    let lake = Lake { table, data, deletes: Vec::new(), runs: 0 };
    assert!(lake.plan(&options()).is_empty());
    assert!(lake.plan(&RewriteDataFilesPolicy { rewrite_all: true, ..options() }).is_empty());
}

fn odd_options() -> impl Strategy<Value = RewriteDataFilesPolicy> {
    // In hundredths of the target.
    let sizes =
        select(vec![(None, None), (Some(99), Some(101)), (Some(1), Some(101)), (Some(95), None), (None, Some(110))]);
    let deletes = (prop::option::of(1..3_usize), select(vec![0.1, 0.3, 1.0]));
    (any::<bool>(), sizes, 1..7_usize, deletes).prop_map(|(rewrite_all, (min, max), min_input_files, deletes)| {
        let part = |hundredths: u64| TARGET * hundredths / 100;
        RewriteDataFilesPolicy {
            rewrite_all,
            min_file_size_bytes: min.map(part),
            max_file_size_bytes: max.map(part),
            min_input_files,
            delete_file_threshold: deletes.0,
            delete_ratio_threshold: deletes.1,
            ..options()
        }
    })
}

fn codecs() -> impl Strategy<Value = (Compression, &'static str)> {
    let inputs = vec![Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())];
    (select(inputs), select(vec!["uncompressed", "zstd"]))
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1..30_u64, 30..110_u64, 110..350_u64], 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Without limits that cut a partition into several groups.
    #[test]
    fn a_run_on_its_own_result_plans_nothing(
        sizes in sizes(),
        codecs in codecs(),
        deleted in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        options in odd_options(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let mut lake = Lake::new(&sizes, codecs.0, codecs.1);
        for (number, file) in deleted.iter().enumerate() {
            let file = file.get(&lake.data).clone();
            let positions: Vec<_> = (0..(file.record_count as i64 + 1) / 2).map(|at| (&*file.file_path, at)).collect();
            let mut delete = lake.table.positions(&format!("p{number}"), &positions, 1000).as_ref().clone();
            delete.referenced_data_file = Some(file.file_path.clone());
            lake.deletes.push(Arc::new(delete));
        }
        let plan = lake.plan(&options);
        let groups = runtime.block_on(lake.run(&plan));
        let again = lake.plan(&options);
        prop_assert!(again.is_empty(), "{:?}\n{}\n{}", groups, plan, again);
    }

    /// With limits each further run merges what the groups before it left.
    #[test]
    fn runs_come_to_an_end_under_limits(
        sizes in sizes(),
        codecs in codecs(),
        options in odd_options(),
        limits in (1..5_usize, 100..400_u64, prop::option::of(2..8_usize)),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let options = RewriteDataFilesPolicy {
            max_file_group_input_files: Some(limits.0),
            max_file_group_size_bytes: TARGET * limits.1 / 100,
            max_files_to_rewrite: limits.2,
            ..options
        };
        let mut lake = Lake::new(&sizes, codecs.0, codecs.1);
        for _ in 0..20 {
            let plan = lake.plan(&options);
            if plan.is_empty() {
                return Ok(());
            }
            runtime.block_on(lake.run(&plan));
        }
        prop_assert!(false, "{}", lake.plan(&options));
    }
}
