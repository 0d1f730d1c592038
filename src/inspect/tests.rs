use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use iceberg::spec::{DataContentType, DataFileFormat, Literal, ManifestContentType, ManifestFile};
use proptest::prelude::*;

use super::stats::StatsBuilder;
use super::summary::ManifestSummary;
use super::{ManifestCache, TableStats};
use crate::meta::unlisted_manifest;
use crate::table::{FileEntry, PartitionTuple, PartitionValues};
use crate::testing::builder::file_entry;

fn entry(name: u8, content: DataContentType, partition: Option<Literal>, bytes: u64, records: u64) -> FileEntry {
    let values = PartitionValues::from_iter([partition]);
    FileEntry {
        content,
        partition: Arc::new(PartitionTuple { spec_id: 0, values }),
        ..file_entry(&format!("s3://b/t/data/{name}"), records, bytes)
    }
}

fn data(name: u8, partition: i32, bytes: u64, records: u64) -> FileEntry {
    entry(name, DataContentType::Data, Some(Literal::int(partition)), bytes, records)
}

fn manifest(path: &str, content: ManifestContentType) -> ManifestFile {
    ManifestFile {
        content,
        sequence_number: 1,
        min_sequence_number: 1,
        partitions: Some(Vec::new()),
        ..unlisted_manifest(path.to_string(), 1000, 1)
    }
}

fn stats(current: &[Vec<FileEntry>], expired: &[Vec<FileEntry>], min_bytes: u64) -> TableStats {
    let mut builder = StatsBuilder::new(min_bytes);
    for entries in current {
        let summary = ManifestSummary::of(entries);
        builder.add_reachable(&summary);
        builder.add_current(&manifest("m", ManifestContentType::Data), &summary);
    }
    expired.iter().for_each(|entries| builder.add_reachable(&ManifestSummary::of(entries)));
    builder.finish(3)
}

#[test]
fn rsd_is_population_deviation_over_mean() {
    // Records 2, 4, 4, 4, 5, 5, 7, 9: mean 5, population deviation 2.
    let files: Vec<FileEntry> =
        (0..).zip([2, 4, 4, 4, 5, 5, 7, 9]).map(|(n, records)| data(n, i32::from(n), 10, records)).collect();
    let found = stats(&[files], &[], 0);
    assert!((found.partition_records_rsd_ratio - 0.4).abs() < 1e-12, "{found:?}");
    assert_eq!((found.partition_bytes_rsd_ratio, found.partition_bytes_mean), (0.0, 10.0));
    assert_eq!((found.partitions, found.snapshots), (8, 3));
}

#[test]
fn one_partition_no_partition_and_no_records_have_no_deviation() {
    let one = stats(&[vec![data(1, 0, 10, 7), data(2, 0, 500, 1)]], &[], 0);
    assert_eq!((one.partitions, one.partition_records_rsd_ratio, one.partition_bytes_rsd_ratio), (1, 0.0, 0.0));
    assert_eq!(stats(&[], &[], 0), TableStats { snapshots: 3, ..TableStats::default() });
    let empty = stats(&[vec![data(1, 0, 0, 0), data(2, 1, 0, 0)]], &[], 0);
    assert_eq!((empty.partition_records_rsd_ratio, empty.partition_bytes_rsd_ratio), (0.0, 0.0));
}

#[test]
fn a_promoted_partition_column_is_one_partition() {
    let before = entry(1, DataContentType::Data, Some(Literal::int(7)), 10, 1);
    let after = entry(2, DataContentType::Data, Some(Literal::long(7)), 10, 1);
    let null = entry(3, DataContentType::Data, None, 10, 1);
    assert_eq!(stats(&[vec![before], vec![after, null]], &[], 0).partitions, 2);
}

#[test]
fn deletion_vectors_in_one_puffin_file_are_one_file() {
    let vector = |path: u8| FileEntry {
        file_format: Some(DataFileFormat::Puffin),
        ..entry(path, DataContentType::PositionDeletes, None, 50, 1)
    };
    let found = stats(&[vec![vector(1), vector(1)]], &[], 0);
    assert_eq!((found.deletion_vectors, found.position_delete_files), (2, 0));
    assert_eq!((found.all_files, found.all_file_bytes), (1, 50));
}

proptest! {
    /// Against counting entry by entry, with files shared between manifests of several snapshots.
    #[test]
    fn stats_agree_with_a_naive_count(
        drafts in prop::collection::vec((any::<bool>(), 0..3_usize, 0..3_u8, 0..4_i32, 0..100_u64, 0..50_u64), 0..40),
        again in prop::collection::vec(0..40_usize, 0..10),
    ) {
        const CONTENT: [DataContentType; 3] =
            [DataContentType::Data, DataContentType::PositionDeletes, DataContentType::EqualityDeletes];
        let mut current = vec![Vec::new(); 3];
        let mut expired = Vec::new();
        for (number, (is_current, content, place, partition, bytes, records)) in (0..).zip(&drafts) {
            let file = entry(number, CONTENT[*content], Some(Literal::int(*partition)), *bytes, *records);
            if *is_current { current[usize::from(*place)].push(file) } else { expired.push(file) }
        }
        // Older manifests may hold files that are still live.
        let live: Vec<FileEntry> = current.iter().flatten().cloned().collect();
        expired.extend(again.iter().filter_map(|index| live.get(*index)).cloned());
        let found = stats(&current, std::slice::from_ref(&expired), 50);

        let of = |content| live.iter().filter(move |file| file.content == content);
        let data_files: Vec<&FileEntry> = of(DataContentType::Data).collect();
        let all: BTreeMap<_, u64> = live.iter().chain(&expired).map(|f| (&f.file_path, f.file_size_bytes)).collect();
        let mut records: BTreeMap<String, f64> = BTreeMap::new();
        for file in &data_files {
            *records.entry(format!("{:?}", file.partition)).or_default() += file.record_count as f64;
        }
        let mean = records.values().sum::<f64>() / records.len() as f64;
        let variance = records.values().map(|r| (r - mean) * (r - mean)).sum::<f64>() / records.len() as f64;
        let rsd = if records.is_empty() || mean == 0.0 { 0.0 } else { variance.sqrt() / mean };
        prop_assert_eq!(found.data_files as usize, data_files.len());
        prop_assert_eq!(found.data_file_bytes, data_files.iter().map(|f| f.file_size_bytes).sum::<u64>());
        prop_assert_eq!(found.data_records, data_files.iter().map(|f| f.record_count).sum::<u64>());
        prop_assert_eq!(found.small_data_files as usize, data_files.iter().filter(|f| f.file_size_bytes < 50).count());
        prop_assert_eq!(found.position_delete_files as usize, of(DataContentType::PositionDeletes).count());
        prop_assert_eq!(found.equality_delete_files as usize, of(DataContentType::EqualityDeletes).count());
        prop_assert_eq!((found.data_manifests, found.manifest_bytes), (3, 3000));
        prop_assert_eq!(found.all_files as usize, all.len());
        prop_assert_eq!(found.all_file_bytes, all.values().sum::<u64>());
        prop_assert_eq!(found.partitions as usize, records.len());
        prop_assert!((found.partition_records_rsd_ratio - rsd).abs() < 1e-9, "{} {}", found.partition_records_rsd_ratio, rsd);
    }
}

fn summary(files: u8) -> Arc<ManifestSummary> {
    Arc::new(ManifestSummary::of(&(0..files).map(|n| data(n, 0, 1, 1)).collect::<Vec<_>>()))
}

#[test]
fn the_cache_forgets_what_was_unused_longest() {
    let manifests: Vec<ManifestFile> =
        (0..20).map(|n| manifest(&format!("s3://b/t/metadata/m{n}.avro"), ManifestContentType::Data)).collect();
    let cache = ManifestCache::new(20_000);
    for manifest in &manifests[..4] {
        cache.put_summary(manifest, summary(100));
    }
    let full = cache.bytes();
    assert!((4 * 2400..20_000).contains(&full), "{full}");
    assert!(cache.summary(&manifests[0]).is_some(), "used now");
    for manifest in &manifests[4..9] {
        cache.put_summary(manifest, summary(100));
        assert!(cache.bytes() <= 20_000);
        assert!(cache.summary(&manifests[0]).is_some(), "used all the time");
    }
    assert!(cache.summary(&manifests[1]).is_none(), "unused longest");
    assert!(cache.summary(&manifests[8]).is_some());
    cache.put_summary(&manifests[8], summary(100));
    let kept: BTreeSet<usize> = (0..9).filter(|n| cache.summary(&manifests[*n]).is_some()).collect();
    assert!(kept.contains(&0) && kept.contains(&8) && kept.len() >= 4, "{kept:?}");

    let small = ManifestCache::new(1000);
    small.put_summary(&manifests[0], summary(100));
    assert_eq!((small.bytes(), small.summary(&manifests[0]).is_none()), (0, true));
}

#[test]
fn a_manifest_of_another_length_is_another_manifest() {
    let cache = ManifestCache::new(20_000);
    let first = manifest("m", ManifestContentType::Data);
    cache.put_summary(&first, summary(1));
    let second = ManifestFile { manifest_length: 1001, ..first.clone() };
    assert!(cache.summary(&second).is_none());
    cache.put_summary(&second, summary(2));
    assert_eq!(cache.summary(&second).map(|s| s.data_files.len()), Some(2));
    assert!(cache.summary(&first).is_none());
}

#[test]
fn neighbouring_lists_share_their_manifests() {
    let cache = ManifestCache::new(1_000_000);
    let all: Vec<ManifestFile> = (0..100).map(|n| manifest(&format!("m{n}"), ManifestContentType::Data)).collect();
    cache.put_list("l1", all[..99].to_vec());
    let first = cache.bytes();
    let second = cache.put_list("l2", all.clone());
    assert!(cache.bytes() - first < first / 5, "{} after {first}", cache.bytes());
    assert_eq!(second.len(), 100);
    assert!(second.iter().all(|manifest| manifest.partitions.is_none()));
    assert_eq!(cache.list("l1").map(|list| Arc::ptr_eq(&list[5], &second[5])), Some(true));
    assert!(cache.list("l3").is_none());
}
