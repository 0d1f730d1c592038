//! Manifests and lists as other writers may write them: read by the schema they carry.

use serde_json::json;

use super::avro::{put_bytes, put_long};
use super::container::{Codec, ContainerWriter};
use super::*;

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
fn put_foreign(out: &mut Vec<u8>, path: &str, target: &str, (format, rows, bytes): (&str, i64, i64)) {
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
    put_bytes(out, format.as_bytes());
    // partition, record count, size, and a partition again.
    longs(out, &[0]);
    put_bytes(out, b"here");
    longs(out, &[1, rows, bytes, 1, 1]);
    // sequence numbers.
    longs(out, &[0, 4, 2, 3]);
}

/// Writes a manifest of [`foreign_schema`] and lists it.
async fn foreign_manifest(
    store: &MemoryStore,
    writer: &mut SnapshotWriter<'_>,
    entries: &[(&str, (&str, i64, i64))],
) -> ManifestFile {
    let header = [("avro.schema", foreign_schema().to_string()), ("content", "deletes".to_owned())];
    let header = header.into_iter().map(|(k, v)| (k.to_owned(), v.into_bytes())).collect();
    let mut out = ContainerWriter::new(header, Codec::Null, [7; 16]);
    for (name, described) in entries {
        out.append(|out| put_foreign(out, name, "mem://b/t/data/a.parquet", *described)).expect("appended");
    }
    let path = "mem://b/t/metadata/foreign.avro";
    let bytes = out.finish().expect("finished");
    let length = bytes.len() as u64;
    store.put(path, bytes);
    let template = [file(DataContentType::EqualityDeletes, "x", vec![None], 1)];
    let template =
        writer.write_added(ManifestContentType::Deletes, 0, &template, None).await.expect("written").remove(0);
    ManifestFile {
        manifest_path: path.into(),
        manifest_length: i64::try_from(length).expect("small"),
        added_files_count: u32::try_from(entries.len()).ok(),
        ..listed(template, 9)
    }
}

#[tokio::test]
async fn a_manifest_is_read_by_its_own_schema_branch_by_branch() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let names = ["mem://b/t/data/d1.parquet", "mem://b/t/data/d2.parquet"];
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let manifest = foreign_manifest(&store, &mut writer, &names.map(|name| (name, ("parquet", 5, 50)))).await;
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

/// Whatever one entry says, the others are read, and all of them are carried over.
#[tokio::test]
async fn an_entry_that_contradicts_the_specification_hides_no_other() {
    let (loaded, store) = (table(FormatVersion::V2, &[]), MemoryStore::new());
    let names = ["a", "b", "c", "d"].map(|name| format!("mem://b/t/data/{name}.parquet"));
    let described = [("parquet", 5, 50), ("vortex", 5, 50), ("parquet", -1, 50), ("parquet", 5, -1)];
    let entries: Vec<_> = names.iter().map(String::as_str).zip(described).collect();
    let mut writer = SnapshotWriter::new(&store, loaded.typed().expect("readable"), identity(1, 1)).expect("supported");
    let manifest = foreign_manifest(&store, &mut writer, &entries).await;
    let seen = |entries: &[FileEntry]| -> Vec<_> {
        entries
            .iter()
            .map(|e| (e.file_format.is_some(), e.record_count, e.file_size_bytes, e.fault.is_some()))
            .collect()
    };
    let expected = [(true, 5, 50, false), (false, 5, 50, false), (true, 0, 50, true), (true, 5, 0, true)];
    assert_eq!(seen(&read_manifest(&store, &loaded, &manifest).await.expect("readable")), expected);
    let found = read_all_manifest_paths(&store, &manifest).await.expect("readable");
    assert_eq!(found.iter().map(|e| &*e.file_path).collect::<Vec<_>>(), names);
    let spliced = splice::splice(&mut writer, &loaded, &[manifest], &HashSet::new()).await.expect("spliced").manifests;
    let again = read_manifest(&store, &loaded, &listed(spliced[0].clone(), 10)).await.expect("readable");
    assert_eq!(seen(&again), expected);
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
