//! Reading: equal to the library where that is right, and never half of a damaged file.

use super::*;
use proptest::prelude::*;

/// Everything a file entry shows, against the library's reading of the same manifest.
async fn equals_library(store: &MemoryStore, loaded: &LoadedTable, manifest: &ManifestFile) {
    let own = read_manifest(store, loaded, manifest).await.expect("valid");
    let io = FileIO::new_with_memory();
    let bytes = store.read(&manifest.manifest_path).await.expect("there");
    io.new_output("memory:/x.avro").expect("valid").write(bytes).await.expect("written");
    let moved = ManifestFile { manifest_path: "memory:/x.avro".into(), ..manifest.clone() };
    let library = moved.load_manifest(&io).await.expect("valid");
    let live: Vec<_> = library.entries().iter().filter(|e| e.is_alive()).collect();
    assert_eq!(own.len(), live.len());
    for (own, library) in own.iter().zip(live) {
        let file = library.data_file();
        assert_eq!(own.file_path.as_ref(), file.file_path());
        assert_eq!(own.content, file.content_type());
        assert_eq!(own.file_format, Some(file.file_format()));
        assert_eq!(own.partition.values.as_struct(), file.partition());
        assert_eq!(own.record_count, file.record_count());
        assert_eq!(own.file_size_bytes, file.file_size_in_bytes());
        assert_eq!(Some(own.data_sequence_number), library.sequence_number());
        assert_eq!(own.file_sequence_number, library.file_sequence_number);
        assert_eq!(Some(own.snapshot_id), library.snapshot_id());
        assert_eq!(own.equality_ids, file.equality_ids().unwrap_or_default());
        assert_eq!(own.sort_order_id, file.sort_order_id());
        assert_eq!(own.referenced_data_file.as_deref().map(str::to_owned), file.referenced_data_file());
    }
    let all = read_all_manifest_paths(store, manifest).await.expect("valid");
    assert_eq!(
        all.iter().filter(|p| p.live).map(|p| p.file_path.clone()).collect::<Vec<_>>(),
        own.iter().map(|e| e.file_path.clone()).collect::<Vec<_>>()
    );
    assert_eq!(all.len(), library.entries().len());
}

fn entries_strategy(deletes: bool) -> impl Strategy<Value = Vec<ManifestEntry>> {
    let one = (
        0..3u8,
        proptest::option::of(0..50i64),
        "[a-z]{0,12}",
        proptest::option::of("[a-zé]{0,20}"),
        0..1_000u64,
        any::<bool>(),
    );
    proptest::collection::vec(one, 0..20).prop_map(move |rows| {
        let rows = rows.into_iter().enumerate();
        rows.map(|(n, (status, sequence, path, partition, records, equality))| {
            let content = match (deletes, equality) {
                (false, _) => DataContentType::Data,
                (true, true) => DataContentType::EqualityDeletes,
                (true, false) => DataContentType::PositionDeletes,
            };
            let status =
                [ManifestStatus::Existing, ManifestStatus::Added, ManifestStatus::Deleted][usize::from(status)];
            let sequence = if status == ManifestStatus::Added { sequence } else { Some(sequence.unwrap_or(2)) };
            entry(
                status,
                sequence,
                file(content, &format!("mem://b/t/{n}-{path}"), vec![partition.map(Literal::string)], records),
            )
        })
        .collect()
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_reader_equals_the_library(data in entries_strategy(false), deletes in entries_strategy(true)) {
        block_on(async {
            for version in [FormatVersion::V1, FormatVersion::V2, FormatVersion::V3] {
                let (loaded, store) = (table(version, &[]), MemoryStore::new());
                let manifest = library_manifest(&store, &loaded, ManifestContentType::Data, data.clone()).await;
                equals_library(&store, &loaded, &listed(manifest, if version == FormatVersion::V1 { 0 } else { 9 })).await;
                if version != FormatVersion::V1 {
                    let manifest = library_manifest(&store, &loaded, ManifestContentType::Deletes, deletes.clone()).await;
                    equals_library(&store, &loaded, &listed(manifest, 9)).await;
                }
            }
        });
    }

    /// Cut or changed anywhere, in any codec: an error or an answer, never a panic; and a cut is always an error.
    #[test]
    fn damage_never_panics(codec in 0..4usize, cut in any::<prop::sample::Index>(), flips in proptest::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4)) {
        block_on(async {
            let codec = ["gzip", "zstd", "snappy", "uncompressed"][codec];
            let (loaded, store) = (table(FormatVersion::V2, &[("write.manifest.compression-codec", codec)]), MemoryStore::new());
            let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
            let files: Vec<_> = (0..5).map(|n| data(&format!("mem://b/t/{n}.parquet"), "p", n)).collect();
            let manifest = writer.write_added(ManifestContentType::Data, 0, &files, None).await.expect("written").remove(0);
            let list = writer.write_list(1, None, vec![manifest.clone()]).await.expect("written");
            let manifest = listed(manifest, 1);
            let good = store.read(&manifest.manifest_path).await.expect("there");
            store.put(&manifest.manifest_path, good.slice(..cut.index(good.len())));
            assert!(read_manifest(&store, &loaded, &manifest).await.is_err());
            assert!(read_all_manifest_paths(&store, &manifest).await.is_err());
            let mut bad = good.to_vec();
            for (at, bits) in &flips {
                let at = at.index(bad.len());
                bad[at] ^= bits;
            }
            store.put(&manifest.manifest_path, bad);
            let _ = read_manifest(&store, &loaded, &manifest).await;
            let _ = read_all_manifest_paths(&store, &manifest).await;
            let mut bad = store.read(&list).await.expect("there").to_vec();
            for (at, bits) in &flips {
                let at = at.index(bad.len());
                bad[at] ^= bits;
            }
            store.put(&list, bad);
            let _ = read_manifest_list_at(&store, &list).await;
        });
    }
}

#[tokio::test]
async fn a_manifest_cut_at_a_block_is_noticed_by_its_length() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let one =
        writer.write_added(ManifestContentType::Data, 0, &[data("a", "p", 1)], None).await.expect("written").remove(0);
    let manifest = listed(one, 1);
    assert_eq!(read_manifest(&store, &loaded, &manifest).await.expect("valid").len(), 1);
    let longer = ManifestFile { manifest_length: manifest.manifest_length + 1, ..manifest.clone() };
    let error = read_manifest(&store, &loaded, &longer).await.expect_err("too short");
    assert!(error.to_string().contains("its manifest list says"), "{error}");
    let uncounted =
        ManifestFile { added_files_count: None, existing_files_count: None, deleted_files_count: None, ..manifest };
    assert_eq!(read_manifest(&store, &loaded, &uncounted).await.expect("valid").len(), 1);
}

/// Some writers get the counts in their lists wrong; what a manifest holds is told by itself. Only one that would be left out
/// by readers that go by the list has rows that are neither there nor gone.
#[tokio::test]
async fn counts_in_a_list_are_no_proof_but_a_manifest_listed_as_empty_must_be() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let entries = vec![
        entry(ManifestStatus::Added, None, data("a", "p", 1)),
        entry(ManifestStatus::Deleted, Some(1), data("b", "p", 1)),
    ];
    let manifest = listed(library_manifest(&store, &loaded, ManifestContentType::Data, entries).await, 1);
    let counts = |added, existing, deleted| ManifestFile {
        added_files_count: added,
        existing_files_count: existing,
        deleted_files_count: deleted,
        ..manifest.clone()
    };
    for wrong in [
        counts(Some(2), Some(0), Some(1)),
        counts(Some(0), Some(5), Some(1)),
        counts(Some(1), Some(0), Some(0)),
        counts(Some(0), None, None),
        counts(None, None, None),
    ] {
        assert_eq!(read_manifest(&store, &loaded, &wrong).await.expect("whole").len(), 1);
        assert_eq!(read_all_manifest_paths(&store, &wrong).await.expect("whole").len(), 2);
    }
    let empty = counts(Some(0), Some(0), Some(2));
    let error = read_manifest(&store, &loaded, &empty).await.expect_err("live or not");
    assert_eq!(error.kind(), ErrorKind::DataInvalid);
    assert!(error.to_string().contains("1 live entries, its manifest list says none"), "{error}");
    assert_eq!(read_all_manifest_paths(&store, &empty).await.expect("reachable in any case").len(), 2);
}

/// A writer's `-1` for a count that it does not know.
#[tokio::test]
async fn impossible_counts_in_a_list_read_as_none() {
    let (loaded, store) =
        (table(FormatVersion::V2, &[("write.manifest.compression-codec", "uncompressed")]), MemoryStore::new());
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let one =
        writer.write_added(ManifestContentType::Data, 0, &[data("a", "p", 1)], None).await.expect("written").remove(0);
    let odd = ManifestFile { existing_files_count: Some(7_777), existing_rows_count: Some(7_777), ..one };
    let list = writer.write_list(1, None, vec![odd]).await.expect("written");
    // Avro's 7777, and -7778 in as many bytes.
    let (listed, negative) = ([0xc2, 0x79], [0xc3, 0x79]);
    let mut bytes = store.read(&list).await.expect("there").to_vec();
    for at in 0..bytes.len() - 1 {
        if bytes[at..at + 2] == listed {
            bytes[at..at + 2].copy_from_slice(&negative);
        }
    }
    store.put(&list, bytes);
    let (read, _) = read_manifest_list_at(&store, &list).await.expect("a list");
    assert_eq!((read[0].added_files_count, read[0].existing_files_count), (Some(1), None));
    assert_eq!((read[0].added_rows_count, read[0].existing_rows_count), (Some(1), None));
}

/// For counting files of a table whose specs cannot be read.
#[tokio::test]
async fn partition_values_are_taken_as_written_where_the_specs_cannot_be_read() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let file = |path: &str, part| file(DataContentType::Data, path, vec![part], 1);
    let entries = vec![
        entry(ManifestStatus::Added, None, file("a", Some(Literal::string("p")))),
        entry(ManifestStatus::Added, None, file("b", None)),
    ];
    let manifest = listed(library_manifest(&store, &loaded, ManifestContentType::Data, entries).await, 1);
    let mut json = serde_json::to_value(loaded.typed().expect("readable").as_ref()).expect("json");
    json["schemas"][0]["fields"][0]["type"] = "variant".into();
    let untyped = LoadedTable::from_metadata_json("m".into(), &json).expect("readable in part");
    assert!(untyped.typed().is_err());
    let values = |entries: Vec<FileEntry>| entries.iter().map(|e| e.partition.values.clone()).collect::<Vec<_>>();
    let known = values(read_manifest(&store, &loaded, &manifest).await.expect("valid"));
    assert_eq!(values(read_manifest(&store, &untyped, &manifest).await.expect("valid")), known);
}

#[tokio::test]
async fn row_ids_are_inherited_in_file_order_past_deleted_and_explicit_ones() {
    let (loaded, store) = (table(FormatVersion::V3, &[]), MemoryStore::new());
    let with_id = |path: &str, records: u64, id: Option<i64>| {
        let mut builder = content_file(DataContentType::Data, path, Struct::from_iter([None]), records, 1);
        builder.first_row_id(id).build().expect("complete")
    };
    let entries = vec![
        entry(ManifestStatus::Added, None, with_id("a", 10, None)),
        entry(ManifestStatus::Deleted, Some(1), with_id("b", 100, None)),
        entry(ManifestStatus::Existing, Some(1), with_id("c", 1000, Some(7))),
        entry(ManifestStatus::Added, None, with_id("d", 5, None)),
    ];
    let manifest = listed(library_manifest(&store, &loaded, ManifestContentType::Data, entries).await, 4);
    let ids = |entries: Vec<FileEntry>| entries.iter().map(|e| e.first_row_id).collect::<Vec<_>>();
    let numbered = ManifestFile { first_row_id: Some(500), ..manifest.clone() };
    assert_eq!(ids(read_manifest(&store, &loaded, &numbered).await.expect("valid")), [Some(500), Some(7), Some(510)]);
    assert_eq!(ids(read_manifest(&store, &loaded, &manifest).await.expect("valid")), [None, None, None]);
}

#[tokio::test]
async fn sequence_numbers_are_inherited_by_added_entries_only() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let entries = vec![
        entry(ManifestStatus::Added, None, data("a", "p", 1)),
        entry(ManifestStatus::Added, Some(2), data("b", "p", 1)),
    ];
    let manifest = listed(library_manifest(&store, &loaded, ManifestContentType::Data, entries).await, 8);
    let read = read_manifest(&store, &loaded, &manifest).await.expect("valid");
    let numbers: Vec<_> =
        read.iter().map(|e| (e.data_sequence_number, e.file_sequence_number, e.snapshot_id)).collect();
    assert_eq!(numbers, [(8, Some(8), 77), (2, Some(8), 77)]);
    // A version 1 manifest in a table upgraded since: everything counts as 0.
    let old = table(FormatVersion::V1, &[]);
    let entries = vec![entry(ManifestStatus::Existing, Some(1), data("a", "p", 1))];
    let manifest = listed(library_manifest(&store, &old, ManifestContentType::Data, entries).await, 0);
    let read = read_manifest(&store, &loaded, &manifest).await.expect("valid");
    assert_eq!((read[0].data_sequence_number, read[0].file_sequence_number), (0, Some(0)));
    // The same in a list with a number cannot be told: no guess.
    let error =
        read_manifest(&store, &loaded, &ManifestFile { sequence_number: 3, ..manifest }).await.expect_err("no number");
    assert!(error.to_string().contains("no data sequence number"), "{error}");
}

fn evolve(loaded: &LoadedTable, to: Schema) -> LoadedTable {
    let builder = loaded.typed().expect("readable").as_ref().clone().into_builder(None);
    let metadata = builder.add_current_schema(to).expect("valid").build().expect("valid").metadata;
    LoadedTable::from_metadata_json("m".into(), &serde_json::to_value(&metadata).expect("json")).expect("valid")
}

#[tokio::test]
async fn partitions_are_typed_by_the_current_schema() {
    let old = table_of(
        FormatVersion::V2,
        schema(vec![(1, "id", PrimitiveType::Long), (2, "p", PrimitiveType::Int)]),
        &[("p", Transform::Identity)],
        &[],
    );
    let store = MemoryStore::new();
    let entries =
        vec![entry(ManifestStatus::Added, None, file(DataContentType::Data, "a", vec![Some(Literal::int(5))], 1))];
    let manifest = listed(library_manifest(&store, &old, ManifestContentType::Data, entries).await, 1);
    let read = async |loaded: &LoadedTable| {
        read_manifest(&store, loaded, &manifest).await.map(|e| e[0].partition.values.clone())
    };
    assert_eq!(read(&old).await.expect("valid"), PartitionValues::from_iter([Some(Literal::int(5))]));
    let wide = evolve(&old, schema(vec![(1, "id", PrimitiveType::Long), (2, "p", PrimitiveType::Long)]));
    assert_eq!(read(&wide).await.expect("valid"), PartitionValues::from_iter([Some(Literal::long(5))]));
    // The source column is dropped: its last type counts.
    let dropped = wide.typed().expect("readable").as_ref().clone().into_builder(None);
    let dropped = dropped.add_partition_spec(UnboundPartitionSpec::builder().build()).expect("valid");
    let dropped = dropped.set_default_partition_spec(-1).expect("valid").build().expect("valid").metadata;
    let dropped =
        LoadedTable::from_metadata_json("m".into(), &serde_json::to_value(&dropped).expect("json")).expect("valid");
    let dropped = evolve(&dropped, schema(vec![(1, "id", PrimitiveType::Long)]));
    assert_eq!(read(&dropped).await.expect("valid"), PartitionValues::from_iter([Some(Literal::long(5))]));
    assert_eq!(
        partition_type(dropped.typed().expect("readable"), 0).expect("known").fields()[0].field_type,
        Box::new(Type::Primitive(PrimitiveType::Long))
    );
    // A table whose column is of a type that int never becomes.
    let other = table_of(
        FormatVersion::V2,
        schema(vec![(1, "id", PrimitiveType::Long), (2, "p", PrimitiveType::String)]),
        &[("p", Transform::Identity)],
        &[],
    );
    let error = read(&other).await.expect_err("impossible");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("mem://b/t/metadata/"), "{error}");
}

#[tokio::test]
async fn a_position_delete_file_is_file_scoped_only_if_that_is_certain() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let target = "mem://b/t/data/a.parquet";
    let position_delete = || content_file(DataContentType::PositionDeletes, "d", Struct::from_iter([None]), 1, 1);
    let position = |lower: &str, upper: &str| {
        let mut builder = position_delete();
        builder.lower_bounds(HashMap::from([(2_147_483_546, Datum::string(lower)), (1, Datum::long(1))]));
        builder.upper_bounds(HashMap::from([(2_147_483_546, Datum::string(upper)), (1, Datum::long(1))]));
        builder.build().expect("complete")
    };
    let explicit = position_delete().referenced_data_file(Some("elsewhere".into())).build().expect("complete");
    let cut = &target[..16];
    let files = [position(target, target), position(cut, cut), position(target, "mem://b/t/data/b.parquet"), explicit];
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let manifest = writer.write_added(ManifestContentType::Deletes, 0, &files, None).await.expect("written").remove(0);
    let read = read_manifest(&store, &loaded, &listed(manifest, 1)).await.expect("valid");
    let referenced: Vec<_> = read.iter().map(|e| e.referenced_data_file.as_deref()).collect();
    assert_eq!(referenced, [None, None, None, Some("elsewhere")], "equal bounds alone prove nothing");
    let bounds: Vec<_> = read.iter().map(|e| e.path_bound.as_deref()).collect();
    assert_eq!(bounds, [Some(target), Some(cut), None, None]);
}

#[tokio::test]
async fn manifest_lists_of_all_versions_are_read() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(5, 1)).expect("supported");
    let mut manifests =
        writer.write_added(ManifestContentType::Data, 0, &[data("a", "p", 3)], Some(0)).await.expect("written");
    let path = writer.write_list(2, Some(4), manifests.clone()).await.expect("written");
    assert_eq!(path, "mem://b/t/metadata/snap-5-2-00000000-0000-0000-0000-000000000001-icewright-token.avro");
    let read = read_manifest_list_at(&store, &path).await.expect("valid").0;
    manifests[0].sequence_number = 1;
    assert_eq!(read, manifests);
    assert_eq!(read[0].min_sequence_number, 0);
    let bytes = store.read(&path).await.expect("there");
    let library = ManifestList::parse_with_version(&bytes, FormatVersion::V2).expect("the library understands");
    assert_eq!(library.entries(), manifests);
    // Version 1: no content, no numbers, counts may be missing.
    let old = table(FormatVersion::V1, &[]);
    let mut writer = SnapshotWriter::new(&store, old.typed().expect("readable"), identity(6, 2)).expect("supported");
    let uncounted = ManifestFile {
        added_files_count: None,
        added_rows_count: None,
        sequence_number: 0,
        min_sequence_number: 0,
        ..manifests[0].clone()
    };
    let path = writer.write_list(1, None, vec![uncounted.clone()]).await.expect("written");
    let (read, bytes) = read_manifest_list_at(&store, &path).await.expect("valid");
    assert_eq!((read, bytes), (vec![uncounted], store.content(&path).expect("there").len() as u64));
}
