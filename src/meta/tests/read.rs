//! Reading: equal to the library where that is right, and never half of a damaged file.

use proptest::prelude::*;
use serde_json::json;

use super::avro::{put_bytes, put_long};
use super::container::{Codec, ContainerWriter};
use super::*;

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
        assert_eq!(own.file_format, file.file_format());
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
    let live = read_manifest_paths(store, manifest).await.expect("valid");
    assert_eq!(
        live.iter().map(|p| p.file_path.clone()).collect::<Vec<_>>(),
        own.iter().map(|e| e.file_path.clone()).collect::<Vec<_>>()
    );
    let all = read_all_manifest_paths(store, manifest).await.expect("valid");
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
            assert!(read_manifest_paths(&store, &manifest).await.is_err());
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

/// A manifest of one position delete file that uses what Avro allows and no usual writer does: fields nobody knows, of any
/// kind; nulls last; unions of more types; nullable items in lists, some of them null; keys after values; types by name, also
/// of an outer namespace; items that take no bytes.
fn foreign_schema() -> serde_json::Value {
    let pair = json!({"type": "record", "name": "pair", "fields": [
        {"name": "value", "type": ["bytes", "null"], "field-id": 127},
        {"name": "key", "type": {"type": "int", "logicalType": "no-such"}, "field-id": 126}]});
    let partition = json!({"type": "record", "name": "r102", "namespace": "deep", "fields": [
        {"name": "p_part", "type": ["string", "null"], "field-id": 1000}]});
    let data_file = json!(["null", "int", {"type": "record", "name": "r2", "fields": [
        {"name": "lower_bounds", "type": [{"type": "array", "items": ["null", pair]}, "null"], "field-id": 125},
        {"name": "content", "type": "int", "field-id": 134},
        {"name": "upper_bounds", "type": {"type": "array", "items": "foreign.pair"}, "field-id": 128},
        {"name": "file_path", "type": "string", "field-id": 100},
        {"name": "file_format", "type": {"type": "string"}, "field-id": 101},
        {"name": "partition", "type": partition, "field-id": 102},
        {"name": "record_count", "type": ["null", "long"], "field-id": 103},
        {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        {"name": "again", "type": ["pair", "deep.r102"], "field-id": 9001}]}]);
    json!({"type": "record", "name": "entry", "namespace": "foreign", "fields": [
        {"name": "kind", "type": ["null", {"type": "enum", "name": "kind", "symbols": ["a", "b"]}, "boolean"], "field-id": 9002},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal"}},
        {"name": "status", "type": "int", "field-id": 0},
        {"name": "snapshot_id", "type": ["long", "null"], "field-id": 1},
        {"name": "tags", "type": {"type": "map", "values": ["null", {"type": "fixed", "name": "mark", "size": 2}]}},
        {"name": "data_file", "type": data_file, "field-id": 2},
        {"name": "sequence_number", "type": ["int", "null"], "field-id": 3},
        {"name": "file_sequence_number", "type": ["null", "string", "long"], "field-id": 4}]})
}

/// An entry of [`foreign_schema`].
fn put_foreign(out: &mut Vec<u8>, path: &str, target: &str) {
    let longs = |out: &mut Vec<u8>, values: &[i64]| values.iter().for_each(|v| put_long(out, *v));
    // kind: the second symbol; nothing: a thousand nulls; amount; status ADDED; no snapshot id.
    longs(out, &[1, 1, 1000, 0]);
    put_bytes(out, b"x");
    longs(out, &[1, 1]);
    // tags: two, of which one is null.
    longs(out, &[2]);
    put_bytes(out, b"k");
    longs(out, &[0]);
    put_bytes(out, b"l");
    longs(out, &[1]);
    out.extend_from_slice(b"mm");
    longs(out, &[0]);
    // data_file: the third type. Its lower bounds: a null, a value that is null, and the path's.
    longs(out, &[2, 0, 3, 0, 1, 1, 7, 1, 0]);
    put_bytes(out, target.as_bytes());
    longs(out, &[2_147_483_546, 0]);
    // content, and the upper bounds in a block that tells its bytes.
    longs(out, &[1]);
    let mut pair = Vec::new();
    put_long(&mut pair, 0);
    put_bytes(&mut pair, target.as_bytes());
    put_long(&mut pair, 2_147_483_546);
    longs(out, &[-1, i64::try_from(pair.len()).expect("small")]);
    out.extend_from_slice(&pair);
    longs(out, &[0]);
    put_bytes(out, path.as_bytes());
    put_bytes(out, b"parquet");
    // partition, record count, size, and a partition again.
    longs(out, &[0]);
    put_bytes(out, b"here");
    longs(out, &[1, 5, 50, 1, 1]);
    // sequence numbers.
    longs(out, &[0, 4, 2, 3]);
}

#[tokio::test]
async fn a_manifest_is_read_by_its_own_schema_branch_by_branch() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let header = [("avro.schema", foreign_schema().to_string()), ("content", "deletes".to_owned())];
    let header = header.into_iter().map(|(k, v)| (k.to_owned(), v.into_bytes())).collect();
    let mut out = ContainerWriter::new(header, Codec::Null, [7; 16]);
    let names = ["mem://b/t/data/d1.parquet", "mem://b/t/data/d2.parquet"];
    for name in names {
        out.append(|out| put_foreign(out, name, "mem://b/t/data/a.parquet")).expect("appended");
    }
    let path = "mem://b/t/metadata/foreign.avro";
    let bytes = out.finish().expect("finished");
    let length = bytes.len() as u64;
    store.put(path, bytes);
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let template = [file(DataContentType::EqualityDeletes, "x", vec![None], 1)];
    let template =
        writer.write_added(ManifestContentType::Deletes, 0, &template, None).await.expect("written").remove(0);
    let manifest = ManifestFile {
        manifest_path: path.into(),
        manifest_length: i64::try_from(length).expect("small"),
        added_files_count: Some(2),
        ..listed(template, 9)
    };
    let check = |entries: &[FileEntry]| {
        assert_eq!(paths(entries), names);
        for entry in entries {
            assert_eq!(entry.path_bound.as_deref(), Some("mem://b/t/data/a.parquet"));
            assert_eq!(entry.partition.values, PartitionValues::from_iter([Some(Literal::string("here"))]));
            assert_eq!((entry.record_count, entry.file_size_bytes), (5, 50));
            assert_eq!((entry.data_sequence_number, entry.file_sequence_number), (4, Some(3)));
        }
    };
    check(&read_manifest(&store, &loaded, &manifest).await.expect("valid"));
    let found = read_all_manifest_paths(&store, &manifest).await.expect("valid");
    assert_eq!(found.iter().map(|e| &*e.file_path).collect::<Vec<_>>(), names);
    let spliced = splice::splice(&mut writer, &loaded, &[manifest], &HashSet::new()).await.expect("spliced").manifests;
    check(&read_manifest(&store, &loaded, &listed(spliced[0].clone(), 10)).await.expect("valid"));
}

#[test]
fn a_manifest_list_with_a_null_summary_has_no_summaries() {
    let schema = json!({"type": "record", "name": "list", "fields": [
        {"name": "manifest_path", "type": ["string", "null"], "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "added_snapshot_id", "type": "long", "field-id": 503},
        {"name": "partitions", "field-id": 507, "type": ["null", {"type": "array", "items": ["null", {"type": "record", "name": "r508",
            "fields": [{"name": "contains_null", "type": "boolean", "field-id": 509}]}]}]}]});
    let partitions = |summaries: &[u8]| {
        let header = std::collections::BTreeMap::from([("avro.schema".to_owned(), schema.to_string().into_bytes())]);
        let mut out = ContainerWriter::new(header, Codec::Null, [7; 16]);
        let entry = |out: &mut Vec<u8>| {
            put_long(out, 0);
            put_bytes(out, b"m.avro");
            [10, 0, 1, 1].iter().for_each(|v| put_long(out, *v));
            out.extend_from_slice(summaries);
        };
        out.append(entry).expect("appended");
        let store = MemoryStore::new();
        store.put("mem://b/list.avro", out.finish().expect("finished"));
        let read = futures::executor::block_on(read_manifest_list_at(&store, "mem://b/list.avro")).expect("valid").0;
        read[0].partitions.clone().map(|all| all.iter().map(|s| s.contains_null).collect::<Vec<_>>())
    };
    // Two summaries as branch 1 of their union; then one of them null.
    assert_eq!(partitions(&[4, 2, 1, 2, 0, 0]), Some(vec![true, false]));
    assert_eq!(partitions(&[4, 2, 1, 0, 0]), None);
}

#[tokio::test]
async fn fixed_partition_values_are_read_with_and_without_a_length() {
    let columns = schema(vec![(1, "code", PrimitiveType::Fixed(4))]);
    let loaded = table_of(FormatVersion::V2, columns, &[("code", Transform::Identity)], &[]);
    let store = MemoryStore::new();
    let codes = ["abcd", "efgh", "\u{8}xyz"];
    let files = codes.map(|code| {
        content_file(DataContentType::Data, code, Struct::from_iter([Some(Literal::fixed(code.bytes()))]), 3, 5)
            .build()
            .expect("complete")
    });
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let manifest = writer.write_added(ManifestContentType::Data, 0, &files, None).await.expect("written").remove(0);
    let proper = listed(manifest, 2);
    // The same entries as Java writes them: another form of values under the same schema.
    let bytes = store.read(&proper.manifest_path).await.expect("there");
    let container = super::container::Container::open(&proper.manifest_path, &bytes).expect("valid");
    let mut out = ContainerWriter::new(container.metadata.clone(), Codec::Null, [7; 16]);
    let layout = super::entry::Layout::of(&proper.manifest_path, &container).expect("valid");
    let mut entries: Vec<Vec<u8>> = Vec::new();
    container
        .for_each(|decoder| {
            let start = decoder.position();
            let raw = layout.decode(decoder, super::entry::Detail::Full)?;
            let (whole, value) = (decoder.since(start).to_vec(), raw.partition[1..].to_vec());
            let at = whole.windows(4).rposition(|window| window == value).expect("the value");
            entries.push([&whole[..at], &[8], &whole[at..]].concat());
            Ok(())
        })
        .expect("valid");
    for entry in entries {
        out.append(|out| out.extend_from_slice(&entry)).expect("appended");
    }
    let counted =
        ManifestFile { manifest_path: "mem://b/t/metadata/counted.avro".into(), manifest_length: 1, ..proper.clone() };
    store.put(&counted.manifest_path, out.finish().expect("finished"));
    for manifest in [proper, counted] {
        let read = read_manifest(&store, &loaded, &manifest).await.expect("valid");
        let values: Vec<_> = read.iter().map(|e| e.partition.values.clone()).collect();
        let expected = codes.map(|code| PartitionValues::from_iter([Some(Literal::fixed(code.bytes()))]));
        assert_eq!((paths(&read), values), (codes.to_vec(), expected.to_vec()));
        assert!(read.iter().all(|e| (e.record_count, e.file_size_bytes) == (3, 5)));
    }
}
