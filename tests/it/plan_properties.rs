//! Properties of planning over random tables, with naive models beside the real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use iceberg::spec::DataContentType;
use icewright::error::ErrorKind;
use icewright::plan::{RewritePlan, check_rewrite_plan, plan_rewrite_data_files};
use icewright::policy::{RewriteDataFilesPolicy, RewriteJobOrder};
use icewright::table::delete_rule::{may_hold_rows_of, without_target};
use icewright::table::{DeleteIndex, FileEntry, PartitionTuple};
use proptest::prelude::*;
use proptest::sample::select;

use super::plan_support::{self as support, World};

/// One random file: kind (0 and 1 data, 2 equality, 3 position by partition, 4 position by file), sequence number, spec,
/// partition value, size, rows, and for kind 4 the data file meant.
type Draft = (u8, i64, i32, u8, u64, u64, prop::sample::Index);

/// Spec 0 is unpartitioned, 1 void only, 2 and 3 (the current one) have one field with values in common.
fn specs() -> World {
    World::new(&[&[], &["void(id)"], &["region"], &["bucket[4](id)"]])
}

fn world(drafts: &[Draft]) -> World {
    let mut world = specs();
    let partitions: Vec<Vec<_>> = (0..4)
        .map(|spec| {
            ["null", "0", "1"].iter().map(|value| world.partition(spec, if spec < 2 { "" } else { value })).collect()
        })
        .collect();
    let place = |spec: i32, value: u8| {
        let of_spec: &Vec<_> = &partitions[usize::try_from(spec).expect("small")];
        Arc::clone(&of_spec[usize::from(value)])
    };
    for (number, (kind, sequence, spec, value, bytes, rows, _)) in drafts.iter().enumerate().filter(|(_, d)| d.0 < 2) {
        let mut file = support::file(&format!("d{number}"), *sequence, *bytes, place(*spec, *value));
        file.record_count = *rows;
        if *kind == 1 {
            file.file_sequence_number = Some(sequence + 1);
        }
        world.data.push(Arc::new(file));
    }
    for (number, (kind, sequence, spec, value, _, rows, target)) in drafts.iter().enumerate() {
        let name = format!("x{number}");
        let mut delete = match kind {
            2 => support::equality_delete(&name, *sequence, place(*spec, *value)),
            3 => support::position_delete(&name, *sequence, place(*spec, *value), None),
            4 if !world.data.is_empty() => {
                let data = target.get(&world.data);
                let mut delete = support::position_delete(&name, *sequence, data.partition.clone(), None);
                delete.referenced_data_file = Some(data.file_path.clone());
                delete
            }
            _ => continue,
        };
        delete.record_count = *rows;
        world.deletes.push(Arc::new(delete));
    }
    let all = world.data.iter().chain(&world.deletes);
    world.sequence_number = all.filter_map(|file| file.file_sequence_number).max().unwrap_or(1);
    world
}

fn worlds() -> impl Strategy<Value = World> {
    let draft = (0..5_u8, 1..6_i64, 0..4_i32, 0..3_u8, 0..220_u64, 0..20_u64, any::<prop::sample::Index>());
    prop::collection::vec(draft, 0..40).prop_map(|drafts| world(&drafts))
}

fn options() -> impl Strategy<Value = RewriteDataFilesPolicy> {
    let order = select(vec![
        RewriteJobOrder::None,
        RewriteJobOrder::BytesAsc,
        RewriteJobOrder::BytesDesc,
        RewriteJobOrder::FilesAsc,
        RewriteJobOrder::FilesDesc,
    ]);
    let limits = (prop::option::of(1..12_usize), prop::option::of(1..5_usize), select(vec![150_u64, 400, 100_000]));
    let deletes = (prop::option::of(1..4_usize), select(vec![0.1, 0.3, 1.0]));
    (any::<bool>(), 1..6_usize, limits, deletes, order).prop_map(|(rewrite_all, min_input, limits, deletes, order)| {
        RewriteDataFilesPolicy {
            rewrite_all,
            min_input_files: min_input,
            max_files_to_rewrite: limits.0,
            max_file_group_input_files: limits.1,
            max_file_group_size_bytes: limits.2,
            delete_file_threshold: deletes.0,
            delete_ratio_threshold: deletes.1,
            rewrite_job_order: order,
            ..support::small_options()
        }
    })
}

fn plan(world: &World, options: &RewriteDataFilesPolicy) -> icewright::plan::RewritePlan {
    let state = world.state();
    let policy = support::policy(options.clone());
    let plan = plan_rewrite_data_files(&state, &policy, Duration::from_secs(60), 0).expect("plannable");
    check_rewrite_plan(&plan, &state, options).expect("sound");
    plan
}

/// The rules again, pair by pair.
fn applies(delete: &FileEntry, file: &FileEntry) -> bool {
    let same_place = delete.partition == file.partition;
    match (delete.content, &delete.referenced_data_file) {
        (DataContentType::EqualityDeletes, _) => {
            delete.data_sequence_number > file.data_sequence_number && (same_place || delete.partition.spec_id < 2)
        }
        (_, Some(path)) => *path == file.file_path && delete.data_sequence_number >= file.data_sequence_number,
        (_, None) => same_place && delete.data_sequence_number >= file.data_sequence_number,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn delete_index_agrees_with_every_pair(world in worlds()) {
        let loaded = world.loaded();
        let index = DeleteIndex::build(loaded.typed().expect("readable"), &world.deletes).expect("valid deletes");
        for file in &world.data {
            let found = index.for_data_file(file).expect("valid");
            let actual: BTreeSet<_> = found.iter().map(|delete| &delete.file_path).collect();
            let pairs = world.deletes.iter().filter(|delete| applies(delete, file));
            let expected: BTreeSet<_> = pairs.clone().map(|delete| &delete.file_path).collect();
            prop_assert_eq!(found.len(), actual.len());
            prop_assert_eq!(&actual, &expected);
            prop_assert_eq!(found.is_empty(), expected.is_empty());
            prop_assert_eq!(found.max_sequence_number(), pairs.clone().map(|d| d.data_sequence_number).max());
            prop_assert_eq!(found.file_scoped().count(), pairs.filter(|d| d.referenced_data_file.is_some()).count());
        }
    }

    #[test]
    fn deletes_without_target_reach_nothing(world in worlds()) {
        let gone = without_target(world.loaded().typed().expect("readable"), &world.data, [], &world.deletes);
        for delete in &world.deletes {
            let is_gone = gone.iter().any(|other| other.file_path == delete.file_path);
            let reaches = |file: &Arc<FileEntry>| {
                // A reader that compares partition values without the spec.
                let mut moved = FileEntry::clone(file);
                if file.partition.values == delete.partition.values {
                    moved.partition = delete.partition.clone();
                }
                applies(delete, &moved) && may_hold_rows_of(delete, file)
            };
            prop_assert_eq!(is_gone, !world.data.iter().any(reaches), "{:?}", delete);
        }
    }

    #[test]
    fn every_file_is_used_once_or_has_a_reason(world in worlds(), options in options()) {
        let plan = plan(&world, &options);
        let live: BTreeSet<_> = world.data.iter().map(|file| &file.file_path).collect();
        let used: Vec<_> = plan.groups.iter().flat_map(|g| &g.tasks).map(|task| &task.data_file.file_path).collect();
        prop_assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), used.len());
        prop_assert!(used.iter().all(|path| live.contains(*path)));
        let skipped: usize = plan.skipped.iter().map(|line| line.files).sum();
        prop_assert_eq!(used.len() + skipped, live.len());
        prop_assert!(options.max_files_to_rewrite.is_none_or(|max| used.len() <= max));
        for group in &plan.groups {
            let places: BTreeSet<_> = group.tasks.iter().map(|t| format!("{:?}", t.data_file.partition)).collect();
            let specs: BTreeSet<_> = group.tasks.iter().map(|t| t.data_file.partition.spec_id).collect();
            prop_assert_eq!(group.partition.is_some(), specs.contains(&3));
            prop_assert!(group.partition.is_none() || places.len() == 1);
            prop_assert!(group.tasks.len() == 1 || group.input_bytes <= options.max_file_group_size_bytes);
            prop_assert!(options.max_file_group_input_files.is_none_or(|max| group.tasks.len() <= max));
        }
    }

    #[test]
    fn the_order_of_manifests_does_not_matter(world in worlds(), options in options(), seed in any::<u64>()) {
        let expected = plan(&world, &options).to_string();
        let mut shuffled = world;
        let key = |file: &Arc<FileEntry>| {
            file.file_path.bytes().fold(seed | 1, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        };
        shuffled.data.sort_by_key(key);
        shuffled.deletes.sort_by_key(key);
        prop_assert_eq!(plan(&shuffled, &options).to_string(), expected);
    }

    /// Without limits that cut a partition into several groups, one run is enough.
    #[test]
    fn a_plan_carried_out_leaves_nothing_to_plan(world in worlds(), options in options()) {
        let unlimited = RewriteDataFilesPolicy {
            max_files_to_rewrite: None,
            max_file_group_input_files: None,
            max_file_group_size_bytes: 100_000,
            ..options
        };
        // Files of old specs become members of partitions, which may then be worth a rewrite of their own.
        let mut current = world;
        current.data.retain(|file| file.partition.spec_id == 3);
        current.deletes.retain(|delete| {
            let named = delete.referenced_data_file.as_ref();
            named.is_none_or(|path| current.data.iter().any(|file| file.file_path == *path))
        });
        let after = current.apply(&plan(&current, &unlimited));
        let again = plan(&after, &unlimited);
        prop_assert!(again.is_empty(), "{}", again);
    }

    /// With limits and old specs, a bounded number of runs is, and every one of them makes progress.
    #[test]
    fn planning_comes_to_an_end(world in worlds(), options in options()) {
        let mut current = world;
        for _ in 0..60 {
            let plan = plan(&current, &options);
            if plan.is_empty() {
                return Ok(());
            }
            current = current.apply(&plan);
        }
        prop_assert!(false, "still planning after 60 runs: {}", plan(&current, &options));
    }
}

/// Data files left out with each reason, and files in groups.
fn left_out(plan: &RewritePlan) -> (Vec<(&'static str, usize)>, usize) {
    let skipped = plan.skipped.iter().map(|line| (line.reason, line.files)).collect();
    (skipped, plan.groups.iter().map(|group| group.tasks.len()).sum())
}

fn rewrite_all() -> RewriteDataFilesPolicy {
    RewriteDataFilesPolicy { rewrite_all: true, ..support::small_options() }
}

/// Three small files in each of two partitions, and one file more in the first.
fn two_partitions() -> (World, [Arc<PartitionTuple>; 2], Arc<FileEntry>) {
    let mut world = specs();
    let places = [world.partition(3, "0"), world.partition(3, "1")];
    for (number, place) in places.iter().cycle().take(6).enumerate() {
        world.data.push(Arc::new(support::file(&format!("d{number}"), 1, 10, place.clone())));
    }
    let odd = Arc::new(support::file("odd", 2, 10, places[0].clone()));
    world.data.push(odd.clone());
    world.sequence_number = 9;
    (world, places, odd)
}

#[test]
fn a_path_that_is_live_twice_leaves_out_its_partition_and_nothing_else() {
    let (mut world, places, odd) = two_partitions();
    world.data.push(odd.clone());
    let plan = plan(&world, &rewrite_all());
    assert_eq!(left_out(&plan), (vec![("duplicate_path", 5)], 3));
    assert_eq!(plan.groups[0].partition.as_ref(), Some(&places[1]));
    assert!(plan.skipped[0].detail.contains("odd.parquet"), "{}", plan.skipped[0].detail);
    // Also where the two entries say different partitions.
    world.data.pop();
    world.data.push(Arc::new(FileEntry { partition: places[1].clone(), ..FileEntry::clone(&odd) }));
    assert_eq!(left_out(&self::plan(&world, &rewrite_all())), (vec![("duplicate_path", 8)], 0));
}

#[test]
fn a_delete_file_that_is_live_twice_leaves_out_the_files_that_it_may_reach() {
    let (mut world, places, odd) = two_partitions();
    let position = support::position_delete("p", 3, places[0].clone(), None);
    let named = support::position_delete("p", 3, places[0].clone(), Some("odd"));
    let equality = support::equality_delete("e", 3, places[0].clone());
    let everywhere = support::equality_delete("g", 3, world.partition(0, ""));
    let older = support::equality_delete("o", 0, places[0].clone());
    for (delete, expected) in [(position, 4), (named, 1), (equality, 4), (everywhere, 7), (older, 0)] {
        let again = FileEntry { data_sequence_number: delete.data_sequence_number + 1, ..delete.clone() };
        let expected = if delete.data_sequence_number == 0 { 3 } else { expected };
        world.deletes = vec![Arc::new(delete), Arc::new(again)];
        let (skipped, _) = left_out(&plan(&world, &rewrite_all()));
        let duplicates: usize = skipped.iter().filter(|line| line.0 == "duplicate_path").map(|line| line.1).sum();
        assert_eq!(duplicates, expected, "{:?}", world.deletes[0].file_path);
    }
    // As data and as a delete.
    world.deletes = vec![Arc::new(FileEntry {
        file_path: odd.file_path.clone(),
        ..support::position_delete("x", 3, places[0].clone(), None)
    })];
    assert_eq!(left_out(&plan(&world, &rewrite_all())), (vec![("duplicate_path", 4)], 3));
}

#[test]
fn one_entry_that_contradicts_the_specification_leaves_out_what_it_concerns() {
    let (world, places, odd) = two_partitions();
    let strange_spec = Arc::new(PartitionTuple { spec_id: 77, values: places[0].values.clone() });
    let no_ids = FileEntry { equality_ids: Vec::new(), ..support::equality_delete("e", 3, places[0].clone()) };
    let unknown = FileEntry { partition: strange_spec.clone(), ..support::equality_delete("u", 3, places[0].clone()) };
    let stray = support::position_delete("s", 3, places[1].clone(), Some("odd"));
    let misplaced = FileEntry { content: DataContentType::Data, ..no_ids.clone() };
    let faulty = FileEntry { fault: Some("is odd".into()), ..support::equality_delete("f", 3, places[0].clone()) };
    for (delete, expected) in [(no_ids, 4), (unknown, 7), (stray, 1), (misplaced, 7), (faulty, 4)] {
        let mut world = world.clone();
        world.deletes.push(Arc::new(delete));
        let (skipped, planned) = left_out(&plan(&world, &rewrite_all()));
        assert_eq!((skipped, planned), (vec![("invalid_entry", expected)], 7 - expected));
    }
    let change = |file: FileEntry| {
        let mut world = world.clone();
        world.data.pop();
        world.data.push(Arc::new(file));
        left_out(&plan(&world, &rewrite_all()))
    };
    assert_eq!(
        change(FileEntry { partition: strange_spec, ..FileEntry::clone(&odd) }),
        (vec![("invalid_entry", 1)], 6)
    );
    assert_eq!(change(FileEntry { encrypted: true, ..FileEntry::clone(&odd) }), (vec![("encrypted", 1)], 6));
    assert_eq!(change(FileEntry { file_format: None, ..FileEntry::clone(&odd) }), (vec![("format", 1)], 6));
    let faulty = FileEntry { fault: Some("is odd".into()), ..FileEntry::clone(&odd) };
    assert_eq!(change(faulty), (vec![("invalid_entry", 4)], 3));
    let delete = FileEntry { content: DataContentType::PositionDeletes, ..FileEntry::clone(&odd) };
    assert_eq!(change(delete), (vec![("invalid_entry", 4)], 3));
}

/// Twenty small files, five of each of four partitions of the older spec.
fn after_evolution(older: &[&str], current: &[&str]) -> World {
    let mut world = World::new(&[older, current]);
    let text =
        |value: i32| if older.contains(&"day(ts)") { format!("197{value}-01-01") } else { format!("{value}, {value}") };
    let places: Vec<_> = (0..4).map(|value| world.partition(0, &text(value))).collect();
    for (number, place) in places.iter().cycle().take(20).enumerate() {
        world.data.push(Arc::new(support::file(&format!("d{number}"), 1, 10, place.clone())));
    }
    world
}

#[test]
fn plain_bin_packing_brings_files_into_another_spec_only_if_fewer_come_out_for_certain() {
    let both = ["region", "bucket[4](id)"];
    for (older, current, planned) in [
        (&[][..], &["bucket[40](id)"][..], false),
        (&["region"], &["region", "bucket[4](id)"], false),
        (&["region"], &["region", "day(ts)"], false),
        (&["day(ts)"], &["hour(ts)"], false),
        (&["bucket[4](id)"], &["bucket[8](id)"], true),
        (&["hour(ts)"], &["day(ts)"], true),
        (&["region"], &["region", "bucket[1](id)"], true),
        (&both, &["region"], true),
        (&both, &[], true),
    ] {
        let world = after_evolution(older, current);
        let (skipped, files) = left_out(&plan(&world, &support::small_options()));
        let expected = if planned { (vec![], 20) } else { (vec![("other_spec", 20)], 0) };
        assert_eq!((skipped, files), expected, "{older:?} to {current:?}");
        assert_eq!(left_out(&plan(&world, &rewrite_all())), (vec![], 20), "rewrite-all asks for it");
    }
}

#[test]
fn deletion_vectors_replace_position_deletes_of_their_file() {
    let mut world = specs();
    world.format_version = 3;
    let place = world.partition(3, "1");
    let (a, b) = (support::file("a", 2, 10, place.clone()), support::file("b", 2, 10, place.clone()));
    let deletes: Vec<Arc<FileEntry>> = [
        support::position_delete("by_partition", 2, place.clone(), None),
        support::position_delete("by_file", 3, place.clone(), Some("a")),
        support::equality_delete("equality", 3, place.clone()),
        support::deletion_vector("vector", 2, place.clone(), "a"),
    ]
    .map(Arc::new)
    .into();
    let index = DeleteIndex::build(world.loaded().typed().expect("readable"), &deletes).expect("valid");
    let names = |file: &FileEntry| -> Vec<String> {
        let found = index.for_data_file(file).expect("valid");
        found.iter().map(|d| d.file_path.rsplit('/').next().unwrap_or_default().to_string()).collect()
    };
    assert_eq!(names(&a), ["equality.parquet", "vector.parquet"]);
    assert_eq!(names(&b), ["equality.parquet", "by_partition.parquet"]);

    let newer = support::file("a", 3, 10, place.clone());
    assert_eq!(index.for_data_file(&newer).expect_err("vector is older").kind(), ErrorKind::DataInvalid);
    let twice = [deletes[3].clone(), Arc::new(support::deletion_vector("second", 4, place, "a"))];
    let error = DeleteIndex::build(world.loaded().typed().expect("readable"), &twice).expect_err("two vectors");
    assert!(error.to_string().contains("two deletion vectors"), "{error}");
}

/// The linter has to notice what a broken planner would do.
#[test]
fn the_plan_check_notices_faults() {
    let mut world = specs();
    let (here, there) = (world.partition(3, "0"), world.partition(3, "1"));
    for (number, place) in [&here, &here, &here, &there].into_iter().enumerate() {
        world.data.push(Arc::new(support::file(&format!("d{number}"), 1, 30, place.clone())));
    }
    world.deletes.push(Arc::new(support::equality_delete("e", 2, here.clone())));
    world.sequence_number = 2;
    let options = RewriteDataFilesPolicy { rewrite_all: true, ..support::small_options() };
    let state = world.state();
    let sound = plan(&world, &options);
    assert_eq!(sound.groups.len(), 1);
    type Fault = (&'static str, fn(&mut icewright::plan::RewritePlan, &World));
    let faults: [Fault; 9] = [
        ("is in the plan twice", |plan, _| {
            let again = plan.groups[0].tasks[0].clone();
            plan.groups[0].tasks[1] = again;
        }),
        ("wrong sum of input bytes", |plan, _| plan.groups[0].input_bytes += 1),
        ("mixes partitions", |plan, world| plan.groups[0].tasks[2].data_file = world.data[3].clone()),
        ("instead of 1", |plan, _| plan.groups[0].tasks[0].delete_files = Vec::new().into()),
        ("does not apply", |plan, world| {
            let stray = support::equality_delete("stray", 1, world.data[0].partition.clone());
            plan.groups[0].tasks[0].delete_files = vec![Arc::new(stray)].into();
        }),
        ("is not a live data file", |plan, world| {
            let stray = support::file("stray", 1, 30, world.data[0].partition.clone());
            plan.groups[0].tasks[2].data_file = Arc::new(stray);
        }),
        ("in groups or skipped", |plan, _| plan.skipped.clear()),
        ("numbered 5", |plan, _| plan.groups[0].index = 5),
        ("planned from another snapshot", |plan, _| plan.snapshot = None),
    ];
    for (expected, break_it) in faults {
        let mut broken = sound.clone();
        break_it(&mut broken, &world);
        let error = check_rewrite_plan(&broken, &state, &options).expect_err(expected);
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains(expected), "{error} lacks {expected}");
    }
}

/// Job orders are stable and come after packing.
#[test]
fn job_orders_sort_groups() {
    let mut world = specs();
    for (value, sizes) in [("null", &[10_u64, 10, 10][..]), ("0", &[30, 30]), ("1", &[1, 1, 1, 1])] {
        for (number, bytes) in sizes.iter().enumerate() {
            let place = world.partition(3, value);
            world.data.push(Arc::new(support::file(&format!("{value}{number}"), 1, *bytes, place)));
        }
    }
    let expected: BTreeMap<&str, (RewriteJobOrder, [usize; 3])> = BTreeMap::from([
        ("none", (RewriteJobOrder::None, [2, 4, 3])),
        ("bytes-asc", (RewriteJobOrder::BytesAsc, [4, 3, 2])),
        ("bytes-desc", (RewriteJobOrder::BytesDesc, [2, 3, 4])),
        ("files-asc", (RewriteJobOrder::FilesAsc, [2, 3, 4])),
        ("files-desc", (RewriteJobOrder::FilesDesc, [4, 3, 2])),
    ]);
    for (name, (order, files)) in expected {
        let options =
            RewriteDataFilesPolicy { rewrite_all: true, rewrite_job_order: order, ..support::small_options() };
        let actual: Vec<usize> = plan(&world, &options).groups.iter().map(|group| group.tasks.len()).collect();
        assert_eq!(actual, files, "{name}");
    }
}
