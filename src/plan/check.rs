//! An independent judge of rewrite plans, run before one is executed. It shares no code with the planner and trusts nothing
//! in the plan: a mistake in planning must not become a mistake in the table. So it has its own model of which delete applies to
//! which data file, beside the one rule of [`crate::table::delete_rule`] that everything else goes by.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::spec::DataContentType;

use super::{FileGroup, RewritePlan, RewriteTask};
use crate::error::{Error, Result};
use crate::policy::RewriteDataFilesPolicy;
use crate::table::{FileEntry, PartitionValues, TableState};

/// Pairs of data file and delete file that are looked at one by one; in a larger plan the rest is only counted.
const MAX_PAIRS: usize = 2_000_000;

/// Checks that `plan` may be carried out on `state`: inputs are live data files, none twice; a group is one partition of the
/// output spec, or holds files of other specs only; sums are right and limits kept; every file has exactly the delete files
/// that apply to it; and every live data file is in a group or accounted for as skipped.
///
/// [`crate::error::ErrorKind::Internal`] with the first fault found.
pub fn check_rewrite_plan(plan: &RewritePlan, state: &TableState, options: &RewriteDataFilesPolicy) -> Result<()> {
    let snapshot_of = |snapshot: &Option<crate::table::SnapshotRef>| snapshot.as_ref().map(|s| s.snapshot_id());
    ensure(snapshot_of(&plan.snapshot) == snapshot_of(&state.snapshot), || "planned from another snapshot".into())?;
    let live: HashMap<&str, &Arc<FileEntry>> = state.data_files.iter().map(|file| (&*file.file_path, file)).collect();
    let model = DeleteModel::new(state)?;
    let mut used: HashSet<&str> = HashSet::new();
    let mut pairs_left = MAX_PAIRS;
    for (number, group) in plan.groups.iter().enumerate() {
        ensure(group.index == number, || format!("group {number} is numbered {}", group.index))?;
        check_group(group, state, options)?;
        for task in &group.tasks {
            let path = &*task.data_file.file_path;
            ensure(used.insert(path), || format!("{path} is in the plan twice"))?;
            let known = live.get(path).is_some_and(|file| is_same(file, &task.data_file));
            ensure(known, || format!("{path} is not a live data file"))?;
            model.check(task, &mut pairs_left)?;
        }
    }
    let skipped: usize = plan.skipped.iter().map(|line| line.files).sum();
    let (considered, accounted) = (plan.considered_data_files, used.len() + skipped);
    ensure(considered == state.data_files.len() && considered == accounted, || {
        format!("{} live data files, {considered} considered, {accounted} in groups or skipped", state.data_files.len())
    })
}

fn check_group(group: &FileGroup, state: &TableState, options: &RewriteDataFilesPolicy) -> Result<()> {
    let fault = |what: &str| Error::internal(format!("rewrite plan: group {} {what}", group.index));
    let output_spec = state.loaded.metadata.default_partition_spec_id();
    let inputs = || group.tasks.iter().map(|task| &task.data_file);
    let bytes: u64 = inputs().map(|file| file.file_size_bytes).sum();
    let in_place = match &group.partition {
        Some(partition) => partition.spec_id == output_spec && inputs().all(|file| file.partition == *partition),
        None => inputs().all(|file| file.partition.spec_id != output_spec),
    };
    let max_files = options.max_file_group_input_files.unwrap_or(usize::MAX);
    let (split, write_max) = (group.input_split_size_bytes, group.write_max_file_size_bytes);
    let faults = [
        (group.tasks.is_empty(), "is empty"),
        (group.output_spec_id != output_spec, "is not written into the current partition spec"),
        (!in_place, "mixes partitions or specs"),
        (bytes != group.input_bytes, "has a wrong sum of input bytes"),
        (group.tasks.len() > 1 && bytes > options.max_file_group_size_bytes, "has too many bytes"),
        (group.tasks.len() > max_files, "has too many files"),
        (group.expected_output_files == 0, "expects no output"),
        (split == 0 || split > write_max, "has an impossible output size"),
    ];
    match faults.into_iter().find(|(is_fault, _)| *is_fault) {
        Some((_, what)) => Err(fault(what)),
        None => Ok(()),
    }
}

/// Sequence numbers of delete files by what they reach, and the rule again, one pair at a time.
struct DeleteModel<'a> {
    unpartitioned: HashSet<i32>,
    everywhere: Vec<i64>,
    equality: HashMap<(i32, &'a PartitionValues), Vec<i64>>,
    position: HashMap<(i32, &'a PartitionValues), Vec<i64>>,
    named: HashMap<&'a str, Vec<i64>>,
    vectors: HashSet<&'a str>,
}

impl<'a> DeleteModel<'a> {
    fn new(state: &'a TableState) -> Result<Self> {
        let specs = state.loaded.typed()?.partition_specs_iter();
        let mut model = Self {
            unpartitioned: specs.filter(|spec| spec.is_unpartitioned()).map(|spec| spec.spec_id()).collect(),
            everywhere: Vec::new(),
            equality: HashMap::new(),
            position: HashMap::new(),
            named: HashMap::new(),
            vectors: HashSet::new(),
        };
        for delete in &state.delete_files {
            let place = (delete.partition.spec_id, &delete.partition.values);
            let list = match (delete.content, delete.referenced_data_file.as_deref()) {
                (DataContentType::EqualityDeletes, _) if model.unpartitioned.contains(&place.0) => {
                    &mut model.everywhere
                }
                (DataContentType::EqualityDeletes, _) => model.equality.entry(place).or_default(),
                (_, Some(path)) if delete.is_deletion_vector() => {
                    model.vectors.insert(path);
                    continue;
                }
                (_, Some(path)) => model.named.entry(path).or_default(),
                (_, None) => model.position.entry(place).or_default(),
            };
            list.push(delete.data_sequence_number);
        }
        let lists = model.equality.values_mut().chain(model.position.values_mut()).chain(model.named.values_mut());
        lists.chain([&mut model.everywhere]).for_each(|list| list.sort_unstable());
        Ok(model)
    }

    /// As many deletes as there should be, all different, each one right: so they are the right ones.
    fn check(&self, task: &RewriteTask, pairs_left: &mut usize) -> Result<()> {
        let path = &task.data_file.file_path;
        let expected = self.expected(&task.data_file);
        let actual = task.delete_files.len();
        ensure(actual == expected, || format!("{path} has {actual} delete files instead of {expected}"))?;
        if *pairs_left < actual {
            *pairs_left = 0;
            return Ok(());
        }
        *pairs_left -= actual;
        let mut seen = HashSet::with_capacity(actual);
        for delete in task.delete_files.iter() {
            let fits = self.applies(delete, &task.data_file);
            ensure(fits && seen.insert((&delete.file_path, delete.content_offset)), || {
                format!("delete file {} does not apply to {path}, or is attached twice", delete.file_path)
            })?;
        }
        Ok(())
    }

    fn expected(&self, file: &FileEntry) -> usize {
        let sequence = file.data_sequence_number;
        let place = (file.partition.spec_id, &file.partition.values);
        let above =
            |list: Option<&Vec<i64>>, least: i64| list.map_or(0, |l| l.len() - l.partition_point(|s| *s < least));
        let later = sequence.saturating_add(1);
        let equality = above(Some(&self.everywhere), later) + above(self.equality.get(&place), later);
        if self.vectors.contains(&*file.file_path) {
            return equality + 1;
        }
        equality + above(self.position.get(&place), sequence) + above(self.named.get(&*file.file_path), sequence)
    }

    fn applies(&self, delete: &FileEntry, file: &FileEntry) -> bool {
        let (delete_seq, file_seq) = (delete.data_sequence_number, file.data_sequence_number);
        match delete.content {
            DataContentType::Data => false,
            DataContentType::EqualityDeletes => {
                let everywhere = self.unpartitioned.contains(&delete.partition.spec_id);
                delete_seq > file_seq && (everywhere || delete.partition == file.partition)
            }
            DataContentType::PositionDeletes => {
                let names_it = delete.referenced_data_file.as_ref().is_none_or(|path| *path == file.file_path);
                delete_seq >= file_seq && delete.partition == file.partition && names_it
            }
        }
    }
}

fn is_same(a: &FileEntry, b: &FileEntry) -> bool {
    let key =
        |f: &FileEntry| (f.content, f.file_size_bytes, f.record_count, f.data_sequence_number, f.partition.spec_id);
    key(a) == key(b) && a.content == DataContentType::Data
}

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::internal(format!("rewrite plan: {}", fault()))) }
}

#[cfg(test)]
mod tests {
    use iceberg::spec::{DataFileFormat, Literal};
    use proptest::prelude::*;

    use super::*;
    use crate::table::delete_rule::{DeleteTargets, may_hold_rows_of};
    use crate::table::{DeleteIndex, PartitionTuple};
    use crate::testing::builder::{file_entry, table_of_four_specs};

    /// Kind (0: data), data sequence number, how much later the file was added (6: nobody knows), spec, value, data file that
    /// a delete names.
    type Draft = (u8, i64, i64, i32, Option<i32>, prop::sample::Index);

    fn state(drafts: &[Draft]) -> TableState {
        let loaded = Arc::new(table_of_four_specs());
        let (mut data_files, mut delete_files) = (Vec::new(), Vec::new());
        let mut with_vector = HashSet::new();
        let entry = |number: usize, (_, sequence, later, spec_id, value, _): &Draft| {
            let value = value.filter(|_| *spec_id > 1).map(Literal::int);
            let values = if *spec_id == 0 { PartitionValues::empty() } else { [value].into_iter().collect() };
            FileEntry {
                data_sequence_number: *sequence,
                file_sequence_number: (*later < 6).then_some(sequence + later),
                partition: Arc::new(PartitionTuple { spec_id: *spec_id, values }),
                ..file_entry(&format!("s3://b/t/data/{number}"), 1, 1)
            }
        };
        for (number, draft) in drafts.iter().enumerate().filter(|(_, draft)| draft.0 == 0) {
            data_files.push(Arc::new(entry(number, draft)));
        }
        for (number, draft) in drafts.iter().enumerate() {
            let mut delete = entry(number, draft);
            match draft.0 {
                1 => (delete.content, delete.equality_ids) = (DataContentType::EqualityDeletes, vec![1]),
                2 => delete.content = DataContentType::PositionDeletes,
                3 | 4 if !data_files.is_empty() => {
                    let named = draft.5.get(&data_files);
                    delete.content = DataContentType::PositionDeletes;
                    delete.partition = named.partition.clone();
                    delete.referenced_data_file = Some(named.file_path.clone());
                    if draft.0 == 4 && with_vector.insert(named.file_path.clone()) {
                        delete.file_format = Some(DataFileFormat::Puffin);
                        delete.data_sequence_number = delete.data_sequence_number.max(named.data_sequence_number);
                    }
                }
                _ => continue,
            }
            delete_files.push(Arc::new(delete));
        }
        TableState { loaded, snapshot: None, manifests: Vec::new(), data_files, delete_files }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        /// The rule that everything else goes by against the model of this judge, pair by pair.
        #[test]
        fn the_one_rule_of_deletes_agrees_with_this_model(
            drafts in prop::collection::vec(
                (0..5_u8, 0..6_i64, 0..7_i64, 0..4_i32, prop::option::of(0..2_i32), any::<prop::sample::Index>()), 0..30)
        ) {
            let state = state(&drafts);
            let metadata = state.loaded.typed().expect("readable");
            let (model, index) = (DeleteModel::new(&state).expect("typed"), DeleteIndex::build(metadata, &state.delete_files));
            let index = index.expect("valid");
            for file in &state.data_files {
                let found = index.for_data_file(file).expect("valid");
                prop_assert_eq!(found.len(), model.expected(file));
                let found: HashSet<_> = found.iter().map(|delete| &delete.file_path).collect();
                let mut alone = DeleteTargets::of_deletes(&state.delete_files);
                alone.add(file);
                for delete in &state.delete_files {
                    let vector = model.vectors.contains(&*file.file_path) && !delete.is_deletion_vector();
                    let replaced = vector && delete.content == DataContentType::PositionDeletes;
                    let applies = model.applies(delete, file);
                    prop_assert_eq!(found.contains(&delete.file_path), applies && !replaced, "{:?} {:?}", delete, file);
                    // What may leave the table is judged by values alone, and keeps more.
                    let same_spec = delete.partition.spec_id == file.partition.spec_id;
                    let kept = alone.may_be_hit_by(delete, metadata);
                    prop_assert!(kept || !applies || !may_hold_rows_of(delete, file), "{:?} {:?}", delete, file);
                    prop_assert!(!kept || applies || !same_spec, "{:?} {:?}", delete, file);
                }
            }
        }
    }
}
