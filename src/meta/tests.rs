//! Reader and writers against the library's own, and against damage.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iceberg::io::FileIO;
use iceberg::spec::*;
use iceberg::{TableCreation, TableIdent};
use proptest::prelude::*;
use uuid::Uuid;

use super::doubles::{MemoryCatalog, MemoryStore};
use super::*;
use crate::catalog::LoadedTable;
use crate::error::ErrorKind;
use crate::storage::Store;
use crate::table::FileEntry;

fn schema(fields: Vec<(i32, &str, PrimitiveType)>) -> Schema {
    let fields =
        fields.into_iter().map(|(id, name, ty)| Arc::new(NestedField::optional(id, name, Type::Primitive(ty))));
    Schema::builder().with_fields(fields).build().expect("valid")
}

fn table_of(
    version: FormatVersion,
    schema: Schema,
    partition: &[(&str, Transform)],
    properties: &[(&str, &str)],
) -> LoadedTable {
    let mut spec = UnboundPartitionSpec::builder();
    for (source, transform) in partition {
        let id = schema.field_by_name(source).expect("known").id;
        spec = spec.add_partition_field(id, format!("{source}_part"), *transform).expect("valid");
    }
    let creation = TableCreation::builder()
        .name("t".into())
        .location("mem://b/t".into())
        .schema(schema)
        .partition_spec(spec.build())
        .properties(properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<HashMap<_, _>>())
        .format_version(version)
        .build();
    let ident = TableIdent::from_strs(["ns", "t"]).expect("valid");
    MemoryCatalog::default().create_table(&ident, creation).expect("valid")
}

fn table(version: FormatVersion, properties: &[(&str, &str)]) -> LoadedTable {
    let schema = schema(vec![(1, "id", PrimitiveType::Long), (2, "p", PrimitiveType::String)]);
    table_of(version, schema, &[("p", Transform::Identity)], properties)
}

fn identity(snapshot_id: i64, n: u128) -> SnapshotIdentity {
    SnapshotIdentity { snapshot_id, commit_uuid: Uuid::from_u128(n), token: "icewright-token".into() }
}

fn file(content: DataContentType, path: &str, partition: Vec<Option<Literal>>, records: u64) -> DataFile {
    let mut builder = DataFileBuilder::default();
    builder
        .content(content)
        .file_path(path.to_owned())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::from_iter(partition))
        .record_count(records)
        .file_size_in_bytes(records * 10)
        .partition_spec_id(0)
        .column_sizes(HashMap::from([(1, 100), (2, 200)]))
        .value_counts(HashMap::from([(1, records), (2, records)]))
        .null_value_counts(HashMap::from([(1, 0)]))
        .lower_bounds(HashMap::from([(1, Datum::long(1)), (2, Datum::string("a"))]))
        .upper_bounds(HashMap::from([(1, Datum::long(9)), (2, Datum::string("z"))]))
        .split_offsets(Some(vec![4, 400]));
    if content == DataContentType::EqualityDeletes {
        builder.equality_ids(Some(vec![1]));
    }
    if content == DataContentType::Data {
        builder.sort_order_id(1);
    }
    builder.build().expect("complete")
}

fn data(path: &str, partition: &str, records: u64) -> DataFile {
    file(DataContentType::Data, path, vec![Some(Literal::string(partition))], records)
}

/// As a manifest list of snapshot `sequence` would show it.
fn listed(mut manifest: ManifestFile, sequence: i64) -> ManifestFile {
    for number in [&mut manifest.sequence_number, &mut manifest.min_sequence_number] {
        if *number < 0 {
            *number = sequence;
        }
    }
    manifest
}

/// A manifest as the library writes it, put into the store.
async fn library_manifest(
    store: &MemoryStore,
    loaded: &LoadedTable,
    content: ManifestContentType,
    entries: Vec<ManifestEntry>,
) -> ManifestFile {
    let io = FileIO::new_with_memory();
    let output = io.new_output("memory:/m.avro").expect("valid");
    let spec = loaded.metadata.default_partition_spec().as_ref().clone();
    let builder = ManifestWriterBuilder::new(output, Some(77), loaded.metadata.current_schema().clone(), spec);
    let mut writer = match (loaded.metadata.format_version(), content) {
        (FormatVersion::V1, _) => builder.build_v1(),
        (FormatVersion::V2, ManifestContentType::Data) => builder.build_v2_data(),
        (FormatVersion::V2, ManifestContentType::Deletes) => builder.build_v2_deletes(),
        (FormatVersion::V3, ManifestContentType::Data) => builder.build_v3_data(),
        (FormatVersion::V3, ManifestContentType::Deletes) => builder.build_v3_deletes(),
    };
    for entry in entries {
        let (sequence, file_sequence) = (entry.sequence_number, entry.file_sequence_number);
        match entry.status {
            ManifestStatus::Added => writer.add_file(entry.data_file, sequence.unwrap_or(-1)),
            ManifestStatus::Existing => writer.add_existing_file(
                entry.data_file,
                entry.snapshot_id.unwrap_or(0),
                sequence.unwrap_or(0),
                file_sequence,
            ),
            ManifestStatus::Deleted => writer.add_delete_file(entry.data_file, sequence.unwrap_or(0), file_sequence),
        }
        .expect("valid");
    }
    let mut manifest = writer.write_manifest_file().await.expect("valid");
    let bytes = io.new_input("memory:/m.avro").expect("valid").read().await.expect("there");
    manifest.manifest_path = format!("mem://b/t/metadata/{}-m0.avro", bytes.len());
    store.put(&manifest.manifest_path, bytes);
    manifest
}

fn entry(status: ManifestStatus, sequence: Option<i64>, file: DataFile) -> ManifestEntry {
    let numbers = (status != ManifestStatus::Added).then_some(3);
    ManifestEntry::builder()
        .status(status)
        .snapshot_id_opt((status != ManifestStatus::Added).then_some(33))
        .sequence_number_opt(sequence)
        .file_sequence_number_opt(numbers)
        .data_file(file)
        .build()
}

fn paths(entries: &[FileEntry]) -> Vec<&str> {
    entries.iter().map(|e| e.file_path.as_ref()).collect()
}

#[tokio::test]
async fn the_library_reads_what_is_written_here() {
    for (version, codec) in [
        (FormatVersion::V1, "gzip"),
        (FormatVersion::V2, "gzip"),
        (FormatVersion::V2, "uncompressed"),
        (FormatVersion::V2, "zstd"),
        (FormatVersion::V2, "snappy"),
    ] {
        let loaded = table(version, &[("write.manifest.compression-codec", codec)]);
        let store = MemoryStore::new();
        let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(77, 1)).expect("supported");
        let files = [data("mem://b/t/data/a.parquet", "x", 5), data("mem://b/t/data/b.parquet", "y", 7)];
        let manifests = writer.write_added(ManifestContentType::Data, 0, &files, Some(4)).await.expect("written");
        assert_eq!(manifests.len(), 1);
        let manifest = &manifests[0];
        assert!(manifest.manifest_path.ends_with("-icewright-token-m0.avro"), "{}", manifest.manifest_path);
        let bytes = store.read(&manifest.manifest_path).await.expect("there");
        assert_eq!(bytes.len() as i64, manifest.manifest_length);
        let parsed = Manifest::parse_avro(&bytes).expect("the library understands");
        assert_eq!(parsed.metadata().format_version, version);
        assert_eq!(parsed.metadata().content, ManifestContentType::Data);
        assert_eq!(parsed.metadata().partition_spec.fields(), loaded.metadata.default_partition_spec().fields());
        for (read, written) in parsed.entries().iter().zip(&files) {
            assert_eq!(read.data_file(), written);
            assert_eq!(read.status(), ManifestStatus::Added);
            assert_eq!(read.snapshot_id(), Some(77));
            assert_eq!(read.sequence_number(), Some(if version == FormatVersion::V1 { 0 } else { 4 }));
        }
        assert_eq!((manifest.added_files_count, manifest.added_rows_count), (Some(2), Some(12)));
        let summary = &manifest.partitions.as_ref().expect("written")[0];
        assert_eq!(summary.lower_bound, Some(ByteBuf::from(b"x".to_vec())));
        assert_eq!(summary.upper_bound, Some(ByteBuf::from(b"y".to_vec())));
    }
}

#[tokio::test]
async fn partition_values_of_every_type_round_trip() {
    let cases: Vec<(PrimitiveType, Literal)> = vec![
        (PrimitiveType::Boolean, Literal::bool(true)),
        (PrimitiveType::Int, Literal::int(-3)),
        (PrimitiveType::Long, Literal::long(-3_000_000_000i64)),
        (PrimitiveType::Float, Literal::float(1.5)),
        (PrimitiveType::Double, Literal::double(-2.5)),
        (PrimitiveType::Date, Literal::date(-1)),
        (PrimitiveType::Time, Literal::time(86_399_999_999)),
        (PrimitiveType::Timestamp, Literal::timestamp(-1)),
        (PrimitiveType::Timestamptz, Literal::timestamptz(1)),
        (PrimitiveType::String, Literal::string("é/=%")),
        (PrimitiveType::Uuid, Literal::uuid(Uuid::from_u128(u128::MAX - 5))),
        (PrimitiveType::Fixed(3), Literal::fixed([1, 2, 255])),
        (PrimitiveType::Binary, Literal::binary([])),
        (PrimitiveType::Decimal { precision: 38, scale: 4 }, Literal::decimal(-123_456_789_012_345_678)),
    ];
    for (ty, value) in cases {
        let loaded =
            table_of(FormatVersion::V2, schema(vec![(1, "p", ty.clone())]), &[("p", Transform::Identity)], &[]);
        let store = MemoryStore::new();
        let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(1, 1)).expect("supported");
        for (n, value) in [Some(value), None].into_iter().enumerate() {
            let mut builder = DataFileBuilder::default();
            builder
                .content(DataContentType::Data)
                .file_path(format!("mem://b/t/{n}"))
                .file_format(DataFileFormat::Parquet);
            let built = builder
                .partition(Struct::from_iter([value.clone()]))
                .record_count(1)
                .file_size_in_bytes(1)
                .build()
                .expect("complete");
            let manifests = writer.write_added(ManifestContentType::Data, 0, &[built], None).await.expect("written");
            let read = read_manifest(&store, &loaded, &listed(manifests[0].clone(), 2)).await.expect("valid");
            assert_eq!(read[0].partition.values, Struct::from_iter([value]), "{ty}");
        }
    }
}

#[tokio::test]
async fn a_partition_of_the_wrong_shape_is_refused() {
    let loaded = table(FormatVersion::V2, &[]);
    let store = MemoryStore::new();
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(1, 1)).expect("supported");
    for partition in [vec![], vec![None, None], vec![Some(Literal::long(1))]] {
        let wrong = [file(DataContentType::Data, "f", partition, 1)];
        assert!(writer.write_added(ManifestContentType::Data, 0, &wrong, None).await.is_err());
    }
    let misplaced = [file(DataContentType::EqualityDeletes, "f", vec![None], 1)];
    assert!(writer.write_added(ManifestContentType::Data, 0, &misplaced, None).await.is_err());
    assert_eq!(store.paths(), Vec::<String>::new());
}

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
        assert_eq!(&own.partition.values, file.partition());
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
            let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(1, 1)).expect("supported");
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
async fn a_manifest_cut_at_a_block_is_noticed_by_length_or_count() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(1, 1)).expect("supported");
    let one =
        writer.write_added(ManifestContentType::Data, 0, &[data("a", "p", 1)], None).await.expect("written").remove(0);
    let manifest = listed(one, 1);
    assert_eq!(read_manifest(&store, &loaded, &manifest).await.expect("valid").len(), 1);
    let longer = ManifestFile { manifest_length: manifest.manifest_length + 1, ..manifest.clone() };
    let error = read_manifest(&store, &loaded, &longer).await.expect_err("too short");
    assert!(error.to_string().contains("its manifest list says"), "{error}");
    let more = ManifestFile { added_files_count: Some(2), ..manifest.clone() };
    assert_eq!(read_manifest(&store, &loaded, &more).await.expect_err("counts").kind(), ErrorKind::DataInvalid);
    assert_eq!(read_manifest_paths(&store, &more).await.expect_err("counts").kind(), ErrorKind::DataInvalid);
    let uncounted =
        ManifestFile { added_files_count: None, existing_files_count: None, deleted_files_count: None, ..manifest };
    assert_eq!(read_manifest(&store, &loaded, &uncounted).await.expect("valid").len(), 1);
}

#[tokio::test]
async fn row_ids_are_inherited_in_file_order_past_deleted_and_explicit_ones() {
    let (loaded, store) = (table(FormatVersion::V3, &[]), MemoryStore::new());
    let with_id = |path: &str, records: u64, id: Option<i64>| {
        let mut builder = DataFileBuilder::default();
        builder.content(DataContentType::Data).file_path(path.to_owned()).file_format(DataFileFormat::Parquet);
        builder.partition(Struct::from_iter([None])).record_count(records).file_size_in_bytes(1).first_row_id(id);
        builder.build().expect("complete")
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
    let builder = loaded.metadata.as_ref().clone().into_builder(None);
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
    assert_eq!(read(&old).await.expect("valid"), Struct::from_iter([Some(Literal::int(5))]));
    let wide = evolve(&old, schema(vec![(1, "id", PrimitiveType::Long), (2, "p", PrimitiveType::Long)]));
    assert_eq!(read(&wide).await.expect("valid"), Struct::from_iter([Some(Literal::long(5))]));
    // The source column is dropped: its last type counts.
    let dropped = wide.metadata.as_ref().clone().into_builder(None);
    let dropped = dropped.add_partition_spec(UnboundPartitionSpec::builder().build()).expect("valid");
    let dropped = dropped.set_default_partition_spec(-1).expect("valid").build().expect("valid").metadata;
    let dropped =
        LoadedTable::from_metadata_json("m".into(), &serde_json::to_value(&dropped).expect("json")).expect("valid");
    let dropped = evolve(&dropped, schema(vec![(1, "id", PrimitiveType::Long)]));
    assert_eq!(read(&dropped).await.expect("valid"), Struct::from_iter([Some(Literal::long(5))]));
    assert_eq!(
        partition_type(&dropped.metadata, 0).expect("known").fields()[0].field_type,
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
    let position = |lower: &str, upper: &str| {
        let mut builder = DataFileBuilder::default();
        builder
            .content(DataContentType::PositionDeletes)
            .file_path("d".to_owned())
            .file_format(DataFileFormat::Parquet);
        builder.partition(Struct::from_iter([None])).record_count(1).file_size_in_bytes(1);
        builder.lower_bounds(HashMap::from([(2_147_483_546, Datum::string(lower)), (1, Datum::long(1))]));
        builder.upper_bounds(HashMap::from([(2_147_483_546, Datum::string(upper)), (1, Datum::long(1))]));
        builder.build().expect("complete")
    };
    let explicit = {
        let mut builder = DataFileBuilder::default();
        builder
            .content(DataContentType::PositionDeletes)
            .file_path("d".to_owned())
            .file_format(DataFileFormat::Parquet);
        builder.partition(Struct::from_iter([None])).record_count(1).file_size_in_bytes(1);
        builder.referenced_data_file(Some("elsewhere".into())).build().expect("complete")
    };
    let cut = &target[..16];
    let files = [position(target, target), position(cut, cut), position(target, "mem://b/t/data/b.parquet"), explicit];
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(1, 1)).expect("supported");
    let manifest = writer.write_added(ManifestContentType::Deletes, 0, &files, None).await.expect("written").remove(0);
    let read = read_manifest(&store, &loaded, &listed(manifest, 1)).await.expect("valid");
    let referenced: Vec<_> = read.iter().map(|e| e.referenced_data_file.as_deref()).collect();
    assert_eq!(referenced, [Some(target), None, None, Some("elsewhere")]);
}

#[tokio::test]
async fn manifest_lists_of_all_versions_are_read() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(5, 1)).expect("supported");
    let mut manifests =
        writer.write_added(ManifestContentType::Data, 0, &[data("a", "p", 3)], Some(0)).await.expect("written");
    let path = writer.write_list(2, Some(4), manifests.clone()).await.expect("written");
    assert_eq!(path, "mem://b/t/metadata/snap-5-2-00000000-0000-0000-0000-000000000001-icewright-token.avro");
    let read = read_manifest_list_at(&store, &path).await.expect("valid");
    manifests[0].sequence_number = 1;
    assert_eq!(read, manifests);
    assert_eq!(read[0].min_sequence_number, 0);
    let bytes = store.read(&path).await.expect("there");
    let library = ManifestList::parse_with_version(&bytes, FormatVersion::V2).expect("the library understands");
    assert_eq!(library.entries(), manifests);
    // Version 1: no content, no numbers, counts may be missing.
    let old = table(FormatVersion::V1, &[]);
    let mut writer = SnapshotWriter::new(&store, &old.metadata, identity(6, 2)).expect("supported");
    let uncounted = ManifestFile {
        added_files_count: None,
        added_rows_count: None,
        sequence_number: 0,
        min_sequence_number: 0,
        ..manifests[0].clone()
    };
    let path = writer.write_list(1, None, vec![uncounted.clone()]).await.expect("written");
    assert_eq!(read_manifest_list_at(&store, &path).await.expect("valid"), [uncounted]);
}

#[tokio::test]
async fn splicing_keeps_every_number_and_every_byte_of_the_files() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let kept = data("mem://b/t/keep.parquet", "p", 5);
    let entries = |n: i64| {
        vec![
            entry(ManifestStatus::Existing, Some(n), kept.clone()),
            entry(ManifestStatus::Added, None, data("mem://b/t/go.parquet", "q", 7)),
            entry(ManifestStatus::Deleted, Some(1), data("mem://b/t/long-gone.parquet", "r", 9)),
        ]
    };
    let source = listed(library_manifest(&store, &loaded, ManifestContentType::Data, entries(2)).await, 6);
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(99, 3)).expect("supported");
    let removed = HashSet::from([Arc::from("mem://b/t/go.parquet")]);
    let spliced = splice::splice(&mut writer, &loaded, &[source], &removed).await.expect("spliced");
    assert_eq!((spliced.deleted, spliced.manifests.len()), (1, 1));
    let manifest = &spliced.manifests[0];
    assert_eq!(
        (manifest.existing_files_count, manifest.deleted_files_count, manifest.added_files_count),
        (Some(1), Some(1), Some(0))
    );
    assert_eq!((manifest.existing_rows_count, manifest.deleted_rows_count), (Some(5), Some(7)));
    assert_eq!(manifest.min_sequence_number, 2);
    let parsed = Manifest::parse_avro(&store.read(&manifest.manifest_path).await.expect("there"))
        .expect("the library understands");
    let numbers: Vec<_> = parsed
        .entries()
        .iter()
        .map(|e| (e.status(), e.snapshot_id(), e.sequence_number(), e.file_sequence_number))
        .collect();
    assert_eq!(
        numbers,
        [(ManifestStatus::Existing, Some(33), Some(2), Some(3)), (ManifestStatus::Deleted, Some(99), Some(6), Some(6)),]
    );
    assert_eq!(parsed.entries()[0].data_file(), &kept);
    let read = read_manifest(&store, &loaded, &listed(manifest.clone(), 7)).await.expect("valid");
    assert_eq!(paths(&read), ["mem://b/t/keep.parquet"]);
}

#[tokio::test]
async fn a_version_1_manifest_spliced_into_a_version_2_table_gets_number_0() {
    let (old, store) = (table(FormatVersion::V1, &[]), MemoryStore::new());
    let files = [data("mem://b/t/a.parquet", "p", 5), data("mem://b/t/b.parquet", "p", 6)];
    let entries = files.iter().map(|f| entry(ManifestStatus::Added, None, f.clone())).collect();
    let source = listed(library_manifest(&store, &old, ManifestContentType::Data, entries).await, 0);
    let new = table(FormatVersion::V2, &[]);
    let mut writer = SnapshotWriter::new(&store, &new.metadata, identity(99, 3)).expect("supported");
    let spliced = splice::splice(&mut writer, &new, &[source], &HashSet::new()).await.expect("spliced");
    let manifest = listed(spliced.manifests[0].clone(), 7);
    assert_eq!(manifest.min_sequence_number, 0);
    let read = read_manifest(&store, &new, &manifest).await.expect("valid");
    assert_eq!(
        read.iter().map(|e| (e.data_sequence_number, e.file_sequence_number)).collect::<Vec<_>>(),
        [(0, Some(0)); 2]
    );
    let parsed = Manifest::parse_avro(&store.read(&manifest.manifest_path).await.expect("there"))
        .expect("the library understands");
    assert_eq!(parsed.metadata().format_version, FormatVersion::V2);
    for (entry, file) in parsed.entries().iter().zip(&files) {
        assert_eq!(
            (entry.status(), entry.sequence_number(), entry.data_file()),
            (ManifestStatus::Existing, Some(0), file)
        );
    }
}

#[tokio::test]
async fn manifests_are_merged_up_to_the_target_size_and_rolled_past_it() {
    let store = MemoryStore::new();
    let loaded = table(
        FormatVersion::V2,
        &[("commit.manifest.target-size-bytes", "3000"), ("write.manifest.compression-codec", "uncompressed")],
    );
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(1, 1)).expect("supported");
    let mut sources = Vec::new();
    for n in 0..40 {
        let one = writer
            .write_added(ManifestContentType::Data, 0, &[data(&format!("mem://b/{n}"), "p", 1)], None)
            .await
            .expect("written");
        sources.push(listed(one[0].clone(), n));
    }
    let mut writer = SnapshotWriter::new(&store, &loaded.metadata, identity(2, 2)).expect("supported");
    let spliced = splice::splice(&mut writer, &loaded, &sources, &HashSet::new()).await.expect("spliced");
    // Blocks of 64 KiB are counted when they close, so that one small manifest takes them all.
    assert_eq!(spliced.manifests.len(), 1);
    assert_eq!(spliced.manifests[0].existing_files_count, Some(40));
    assert_eq!(spliced.manifests[0].min_sequence_number, 0);
    let many: Vec<_> = (0..2000).map(|n| data(&format!("mem://b/many/{n}"), "p", 1)).collect();
    let manifests = writer.write_added(ManifestContentType::Data, 0, &many, None).await.expect("written");
    assert!(manifests.len() > 3, "{}", manifests.len());
    assert_eq!(manifests.iter().map(|m| m.added_files_count.unwrap_or(0)).sum::<u32>(), 2000);
}

#[test]
fn a_summary_counts_and_never_invents_totals() {
    let mut builder = SummaryBuilder::default();
    builder.add(0, &data("a", "p", 5));
    builder.add(0, &file(DataContentType::EqualityDeletes, "e", vec![None], 3));
    let first = builder.build(None);
    let get = |map: &HashMap<String, String>, key: &str| map.get(key).cloned();
    assert_eq!(get(&first, "total-records").as_deref(), Some("5"));
    assert_eq!(get(&first, "total-equality-deletes").as_deref(), Some("3"));
    assert_eq!(get(&first, "added-delete-files").as_deref(), Some("1"));
    assert_eq!(get(&first, "changed-partition-count").as_deref(), Some("2"));
    assert_eq!(get(&first, "added-dvs"), None);
    let parent = |totals: &[(&str, &str)]| Summary {
        operation: Operation::Append,
        additional_properties: totals.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    };
    let next = builder.build(Some(&parent(&[("total-records", "10"), ("total-files-size", "nonsense")])));
    assert_eq!(get(&next, "total-records").as_deref(), Some("15"));
    assert_eq!(get(&next, "total-files-size"), None);
    assert_eq!(get(&next, "total-data-files"), None);
}
