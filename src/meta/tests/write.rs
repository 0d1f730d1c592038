//! Writing: what the library reads back, and what splicing keeps.

use super::*;

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
        let mut writer =
            SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(77, 1)).expect("supported");
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
        assert_eq!(
            parsed.metadata().partition_spec.fields(),
            loaded.typed().expect("readable").default_partition_spec().fields()
        );
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
        let mut writer =
            SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
        for (n, value) in [Some(value), None].into_iter().enumerate() {
            let partition = Struct::from_iter([value.clone()]);
            let built = content_file(DataContentType::Data, &format!("mem://b/t/{n}"), partition, 1, 1);
            let built = built.build().expect("complete");
            let manifests = writer.write_added(ManifestContentType::Data, 0, &[built], None).await.expect("written");
            let read = read_manifest(&store, &loaded, &listed(manifests[0].clone(), 2)).await.expect("valid");
            assert_eq!(read[0].partition.values.as_struct(), &Struct::from_iter([value]), "{ty}");
        }
    }
}

#[tokio::test]
async fn a_partition_of_the_wrong_shape_is_refused() {
    let loaded = table(FormatVersion::V2, &[]);
    let store = MemoryStore::new();
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    for partition in [vec![], vec![None, None], vec![Some(Literal::long(1))]] {
        let wrong = [file(DataContentType::Data, "f", partition, 1)];
        assert!(writer.write_added(ManifestContentType::Data, 0, &wrong, None).await.is_err());
    }
    let misplaced = [file(DataContentType::EqualityDeletes, "f", vec![None], 1)];
    assert!(writer.write_added(ManifestContentType::Data, 0, &misplaced, None).await.is_err());
    assert_eq!(store.paths(), Vec::<String>::new());
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
    let mut writer =
        SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(99, 3)).expect("supported");
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
    let mut writer = SnapshotWriter::new(&store, new.typed().expect("readable"), identity(99, 3)).expect("supported");
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
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let mut sources = Vec::new();
    for n in 0..40 {
        let one = writer
            .write_added(ManifestContentType::Data, 0, &[data(&format!("mem://b/{n}"), "p", 1)], None)
            .await
            .expect("written");
        sources.push(listed(one[0].clone(), n));
    }
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(2, 2)).expect("supported");
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

#[tokio::test]
async fn two_partition_fields_of_one_fixed_type_make_a_valid_schema() {
    let decimal = PrimitiveType::Decimal { precision: 9, scale: 2 };
    let columns = schema(vec![(1, "a", decimal.clone()), (2, "b", decimal)]);
    let loaded = table_of(FormatVersion::V2, columns, &[("a", Transform::Identity), ("b", Transform::Identity)], &[]);
    let store = MemoryStore::new();
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let values = vec![Some(Literal::decimal(-5)), Some(Literal::decimal(12_345))];
    let file = content_file(DataContentType::Data, "f", Struct::from_iter(values), 1, 1).build().expect("complete");
    let manifests =
        writer.write_added(ManifestContentType::Data, 0, std::slice::from_ref(&file), None).await.expect("written");
    let bytes = store.read(&manifests[0].manifest_path).await.expect("there");
    assert_eq!(Manifest::parse_avro(&bytes).expect("the library understands").entries()[0].data_file(), &file);
}

/// The order of UUIDs in the Java library (1.9.2): two signed numbers.
fn signed(bytes: &[u8]) -> (i64, i64) {
    let half = |range: std::ops::Range<usize>| i64::from_be_bytes(bytes[range].try_into().expect("8 bytes"));
    (half(0..8), half(8..16))
}

#[tokio::test]
async fn manifests_of_uuid_partitions_have_bounds_that_hold_in_every_order() {
    let loaded =
        table_of(FormatVersion::V2, schema(vec![(1, "u", PrimitiveType::Uuid)]), &[("u", Transform::Identity)], &[]);
    let store = MemoryStore::new();
    let ends = [0u64, 1, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, 0xffff_ffff_ffff_ffff];
    let values =
        ends.iter().flat_map(|upper| ends.iter().map(move |lower| u128::from(*upper) << 64 | u128::from(*lower)));
    let values: Vec<Option<Literal>> = values.map(|v| Some(Literal::uuid(Uuid::from_u128(v)))).chain([None]).collect();
    let file = |(n, value): (usize, &Option<Literal>)| {
        content_file(DataContentType::Data, &format!("f{n}"), Struct::from_iter([value.clone()]), 1, 1)
            .build()
            .expect("complete")
    };
    let files: Vec<DataFile> = values.iter().enumerate().map(file).collect();
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let added = writer.write_added(ManifestContentType::Data, 0, &files, None).await.expect("written");
    let added: Vec<_> = added.into_iter().map(|m| listed(m, 2)).collect();
    let spliced = splice::splice(&mut writer, &loaded, &added, &HashSet::new()).await.expect("spliced").manifests;
    for manifests in [added, spliced.into_iter().map(|m| listed(m, 2)).collect()] {
        assert!(manifests.len() <= 5, "{} manifests for four kinds of UUIDs and NULL", manifests.len());
        let mut seen = 0;
        for manifest in manifests {
            let summary = &manifest.partitions.as_ref().expect("summaries")[0];
            for entry in read_manifest(&store, &loaded, &manifest).await.expect("valid") {
                seen += 1;
                let Some(Some(Literal::Primitive(PrimitiveLiteral::UInt128(value)))) =
                    entry.partition.values.fields().first()
                else {
                    assert!(summary.contains_null);
                    continue;
                };
                let value = value.to_be_bytes();
                let (low, high) =
                    (summary.lower_bound.as_ref().expect("a bound"), summary.upper_bound.as_ref().expect("a bound"));
                assert!(low.as_slice() <= &value[..] && &value[..] <= high.as_slice(), "as bytes");
                assert!(signed(low) <= signed(&value) && signed(&value) <= signed(high), "as signed numbers");
            }
        }
        assert_eq!(seen, files.len());
    }
}
