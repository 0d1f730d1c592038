//! Equality and position deletes: which rows go, and which must stay.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StructArray};
use arrow::datatypes::{DataType, Fields};
use icewright::error::ErrorKind;
use icewright::testing::Operation;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::json;

use super::table::{Table, batch, field, group, longs, parquet_with, task, text_partition, texts};

fn id_and_s() -> serde_json::Value {
    json!([
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 2, "name": "s", "type": "string", "required": false},
    ])
}

#[tokio::test]
async fn a_key_does_not_delete_rows_whose_key_is_null() {
    let t = Table::new(id_and_s());
    let data = batch(vec![(1, "id", longs(1..=3)), (2, "s", texts([Some("x"), None, Some("y")]))]);
    let delete = t.equality("d", &batch(vec![(2, "s", texts([Some("x")]))]), &[2], 2);
    let rows = t.rewritten_rows(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await;
    assert_eq!(rows, ["2|-", "3|y"]);
}

#[tokio::test]
async fn a_null_key_deletes_exactly_the_null_rows() {
    let t = Table::new(id_and_s());
    let data = batch(vec![(1, "id", longs(1..=3)), (2, "s", texts([Some("x"), None, Some("")]))]);
    let delete = t.equality("d", &batch(vec![(2, "s", texts([None]))]), &[2], 2);
    let rows = t.rewritten_rows(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await;
    assert_eq!(rows, ["1|x", "3|"]);
}

#[tokio::test]
async fn a_column_added_after_the_file_reads_as_null() {
    let t = Table::new(id_and_s());
    let old = || batch(vec![(1, "id", longs(1..=4))]);
    let by_value = t.equality("d1", &batch(vec![(2, "s", texts([Some("x")]))]), &[2], 2);
    let rows = t.rewritten_rows(&group(vec![task(t.data("a", &old(), 1), &[&by_value])])).await;
    assert_eq!(rows, ["1|-", "2|-", "3|-", "4|-"]);
    let by_null = t.equality("d2", &batch(vec![(2, "s", texts([None]))]), &[2], 2);
    let rows = t.rewritten_rows(&group(vec![task(t.data("b", &old(), 1), &[&by_null])])).await;
    assert!(rows.is_empty());
}

#[tokio::test]
async fn a_wide_key_does_not_wrap_onto_narrow_data() {
    let t = Table::new(json!([{"id": 1, "name": "id", "type": "int", "required": false}]))
        .evolve(json!([{"id": 1, "name": "id", "type": "long", "required": false}]));
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![7, 8]));
    let wide = t.equality("d", &batch(vec![(1, "id", longs([5_000_000_000, 7]))]), &[1], 2);
    let narrow_delete: ArrayRef = Arc::new(Int32Array::from(vec![9]));
    let old = t.equality("e", &batch(vec![(1, "id", narrow_delete)]), &[1], 2);
    let files = vec![
        task(t.data("a", &batch(vec![(1, "id", narrow)]), 1), &[&wide, &old]),
        task(t.data("b", &batch(vec![(1, "id", longs([9, 5_000_000_000, 10]))]), 1), &[&wide, &old]),
    ];
    assert_eq!(t.rewritten_rows(&group(files)).await, ["8", "10"]);
}

#[tokio::test]
async fn a_dropped_column_still_deletes() {
    let t = Table::new(id_and_s()).evolve(json!([{"id": 1, "name": "id", "type": "long", "required": false}]));
    let data = batch(vec![(1, "id", longs(1..=4)), (2, "s", texts([Some("x"), None, Some("y"), Some("z")]))]);
    let delete = t.equality("d", &batch(vec![(2, "s", texts([Some("x")]))]), &[2], 2);
    let rows = t.rewritten_rows(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await;
    assert_eq!(rows, ["2", "3", "4"]);
}

#[tokio::test]
async fn a_dropped_key_that_the_name_mapping_forgot_is_refused() {
    let dropped = || Table::new(id_and_s()).evolve(json!([{"id": 1, "name": "id", "type": "long", "required": false}]));
    let data = batch(vec![(0, "id", longs(1..=2)), (0, "s", texts([Some("x"), Some("y")]))]);
    let key = batch(vec![(2, "s", texts([Some("x")]))]);
    let mapping = r#"[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["s"]}]"#;
    let t = dropped().property("schema.name-mapping.default", mapping);
    let delete = t.equality("d", &key, &[2], 2);
    assert_eq!(t.rewritten_rows(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await, ["2"]);
    let t = dropped().property("schema.name-mapping.default", r#"[{"field-id": 1, "names": ["id"]}]"#);
    let delete = t.equality("d", &key, &[2], 2);
    let error = t.rewrite(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await.expect_err("cannot be told");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

fn nested(ids: &[i64], null_at: Option<usize>) -> ArrayRef {
    let fields: Fields = vec![field(3, "x", DataType::Int64), field(4, "y", DataType::Int64)].into();
    let nulls = null_at.map(|n| (0..ids.len()).map(|i| i != n).collect::<Vec<bool>>().into());
    let y: ArrayRef = Arc::new(Int64Array::from(vec![0; ids.len()]));
    Arc::new(StructArray::new(fields, vec![longs(ids.iter().copied()), y], nulls))
}

#[tokio::test]
async fn a_nested_column_deletes_also_after_it_was_dropped() {
    let before = json!([
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 2, "name": "n", "required": false, "type": {"type": "struct", "fields": [
            {"id": 3, "name": "x", "type": "long", "required": false},
            {"id": 4, "name": "y", "type": "long", "required": false}]}},
    ]);
    let after = json!([
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 2, "name": "n", "required": false, "type": {"type": "struct", "fields": [
            {"id": 4, "name": "y", "type": "long", "required": false}]}},
    ]);
    let key = |values: &[i64], null_at: Option<usize>| {
        let only_x: Fields = vec![field(3, "x", DataType::Int64)].into();
        let nulls = null_at.map(|n| (0..values.len()).map(|i| i != n).collect::<Vec<bool>>().into());
        let array: ArrayRef = Arc::new(StructArray::new(only_x, vec![longs(values.iter().copied())], nulls));
        batch(vec![(2, "n", array)])
    };
    for (table, expected) in
        [(Table::new(before.clone()), ["1|{x: 10, y: 0}"]), (Table::new(before).evolve(after), ["1|{y: 0}"])]
    {
        let data = batch(vec![(1, "id", longs(1..=3)), (2, "n", nested(&[10, 20, 30], Some(2)))]);
        let delete = table.equality("d", &key(&[20, 0], Some(1)), &[3], 2);
        let rows = table.rewritten_rows(&group(vec![task(table.data("a", &data, 1), &[&delete])])).await;
        assert_eq!(rows, expected, "20 is deleted by value, the NULL struct by NULL");
    }
}

#[tokio::test]
async fn equality_deletes_need_strictly_older_data_and_positions_do_not() {
    let t = Table::new(id_and_s());
    let rows = |ids: std::ops::RangeInclusive<i64>| {
        let count = ids.clone().count();
        batch(vec![(1, "id", longs(ids)), (2, "s", texts(vec![None; count]))])
    };
    // An upsert commit: the new version of key 1 came with the delete of the old one.
    let upsert = t.equality("e", &batch(vec![(1, "id", longs([1]))]), &[1], 5);
    let same = t.data("same", &rows(1..=2), 5);
    let position = t.positions("p", &[(&same.file_path.clone(), 1)], 5);
    let files = vec![
        task(t.data("old", &rows(1..=1), 4), &[&upsert]),
        task(same, &[&upsert, &position]),
        task(t.data("new", &rows(1..=1), 6), &[&upsert]),
    ];
    assert_eq!(t.rewritten_rows(&group(files)).await, ["1|-", "1|-"]);
}

#[tokio::test]
async fn a_delete_hits_only_the_files_it_is_listed_for() {
    let t = Table::new(id_and_s())
        .partitioned(json!([{"source-id": 2, "field-id": 1000, "name": "s", "transform": "identity"}]));
    let file = |name: &str, s: &str, seq| {
        let mut entry = t.data(name, &batch(vec![(1, "id", longs(1..=2)), (2, "s", texts([Some(s); 2]))]), seq);
        entry.partition = text_partition(1, Some(s));
        entry
    };
    let delete = |name: &str, id: i64, s: Option<&str>, seq| {
        let mut entry = (*t.equality(name, &batch(vec![(1, "id", longs([id]))]), &[1], seq)).clone();
        if s.is_some() {
            entry.partition = text_partition(1, s);
        }
        Arc::new(entry)
    };
    let (in_a, in_b, global) = (delete("da", 1, Some("a"), 3), delete("db", 2, Some("b"), 3), delete("dg", 2, None, 4));
    let mut pooled = group(vec![
        task(file("a1", "a", 1), &[&in_a, &global]),
        // The plan does not list `in_a` here although partition and sequence number would fit: it must not apply.
        task(file("a2", "a", 1), &[&global]),
        task(file("b1", "b", 1), &[&in_b]),
        task(file("b2", "b", 4), &[&in_b, &global]),
    ]);
    pooled.partition = None;
    pooled.output_spec_id = 1;
    let mut rows = t.rewritten_rows(&pooled).await;
    rows.sort();
    assert_eq!(rows, ["1|a", "1|b", "1|b", "2|b"]);
}

#[tokio::test]
async fn sets_of_several_columns_and_sequence_numbers_work_together() {
    let t = Table::new(id_and_s());
    let key = |id: i64, s: Option<&str>| batch(vec![(2, "s", texts([s])), (1, "id", longs([id]))]);
    let both_3 = t.equality("d3", &key(1, Some("x")), &[2, 1], 3);
    let both_5 = t.equality("d5", &key(1, Some("x")), &[1, 2], 5);
    let id_4 = t.equality("d4", &batch(vec![(1, "id", longs([2]))]), &[1], 4);
    let rows = || batch(vec![(1, "id", longs([1, 1, 2])), (2, "s", texts([Some("x"), Some("y"), None]))]);
    let files = vec![
        task(t.data("f1", &rows(), 1), &[&both_3, &both_5, &id_4]),
        task(t.data("f4", &rows(), 4), &[&both_5]),
        task(t.data("f5", &rows(), 5), &[]),
    ];
    assert_eq!(t.rewritten_rows(&group(files)).await, ["1|y", "1|y", "2|-", "1|x", "1|y", "2|-"]);
}

#[tokio::test]
async fn positions_are_ordinals_in_the_file_whatever_its_row_groups() {
    let t = Table::new(id_and_s());
    let data = batch(vec![(1, "id", longs(0..500)), (2, "s", texts(vec![None; 500]))]);
    let five_groups = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let file = t.raw("a", &parquet_with(&data, five_groups), 500, 1);
    let path = file.file_path.clone();
    let deleted = [100, 199, 400, 499];
    let rows: Vec<(&str, i64)> =
        deleted.iter().map(|p| (&*path, *p)).chain([("mem://other", 0), (&*path, 10_000)]).collect();
    let delete = t.positions("p", &rows, 1);
    let left = t.rewritten_rows(&group(vec![task(file, &[&delete])])).await;
    let expected: Vec<String> = (0..500).filter(|i| !deleted.contains(i)).map(|i| format!("{i}|-")).collect();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn large_files_are_read_by_row_group_and_keep_their_positions() {
    let t = Table::new(id_and_s()).property("write.parquet.compression-codec", "uncompressed");
    let payload = "x".repeat(1 << 20);
    let data = batch(vec![(1, "id", longs(0..40)), (2, "s", texts(vec![Some(payload.as_str()); 40]))]);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(8))
        .build();
    let bytes = parquet_with(&data, properties);
    assert!(bytes.len() > 33 << 20, "the file must be larger than the limit for whole reads");
    let file = t.raw("big", &bytes, 40, 1);
    let path = file.file_path.clone();
    let deleted = [0, 7, 8, 39];
    let delete = t.positions("p", &deleted.map(|p| (&*path, p)), 1);
    let g = group(vec![task(file, &[&delete])]);
    let result = t.rewrite(&g).await.expect("a rewrite that succeeds");
    assert_eq!((result.added.len(), result.deleted_rows), (1, 4));
    assert!(t.faulty.longest_read() < 9 << 20);
    let mut ids = Vec::new();
    for batch in result.added.iter().flat_map(|f| t.batches(f)) {
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>().expect("longs");
        ids.extend(column.values().iter().copied());
    }
    assert_eq!(ids, (0..40).filter(|i| !deleted.contains(i)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_group_without_live_rows_leaves_no_file() {
    let t = Table::new(id_and_s());
    let data = batch(vec![(1, "id", longs([1])), (2, "s", texts([None]))]);
    let delete = t.equality("d", &batch(vec![(1, "id", longs([1]))]), &[1], 2);
    let before = t.store.paths().len() + 1;
    let result = t.rewrite(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await.expect("succeeds");
    assert!(result.added.is_empty());
    assert_eq!((result.input_rows, result.deleted_rows, t.store.paths().len()), (1, 1, before));
}

#[tokio::test]
async fn a_delete_file_is_read_once_for_all_its_data_files() {
    let t = Table::new(id_and_s());
    let data = |from: i64| batch(vec![(1, "id", longs(from..from + 10)), (2, "s", texts(vec![None; 10]))]);
    let files: Vec<_> = (0..6).map(|i| t.data(&format!("f{i}"), &data(i * 10), i)).collect();
    let paths: Vec<_> = files.iter().map(|f| f.file_path.clone()).collect();
    let keys: Vec<_> =
        (1..6).map(|s| t.equality(&format!("e{s}"), &batch(vec![(1, "id", longs([s]))]), &[1], s)).collect();
    let rows: Vec<(&str, i64)> = paths.iter().map(|p| (&**p, 9)).collect();
    let positions = t.positions("p", &rows, 9);
    let tasks = files.into_iter().map(|f| {
        let newer: Vec<_> = keys.iter().filter(|k| k.data_sequence_number > f.data_sequence_number).collect();
        task(f, &newer.into_iter().chain([&positions]).collect::<Vec<_>>())
    });
    let result = t.rewrite(&group(tasks.collect())).await.expect("a rewrite that succeeds");
    // Keys 1 to 5 are all in the first file; each file also loses its last row.
    assert_eq!((result.input_rows, result.deleted_rows), (60, 5 + 6));
    let reads = t.faulty.count(Operation::Read) + t.faulty.count(Operation::ReadRange);
    assert_eq!(reads, 6 + 5 + 1 + 1, "data, keys, positions, and the output's footer");
}

#[tokio::test]
async fn a_delete_file_without_its_key_column_is_refused() {
    let t = Table::new(id_and_s());
    let data = batch(vec![(1, "id", longs([1])), (2, "s", texts([None]))]);
    let delete = t.equality("d", &batch(vec![(1, "id", longs([1]))]), &[2], 2);
    let error = t.rewrite(&group(vec![task(t.data("a", &data, 1), &[&delete])])).await.expect_err("no key column");
    assert_eq!(error.kind(), ErrorKind::DataInvalid, "{error}");
    let unknown = t.equality("u", &batch(vec![(77, "u", longs([1]))]), &[77], 2);
    let error = t.rewrite(&group(vec![task(t.data("b", &data, 1), &[&unknown])])).await.expect_err("no such column");
    assert!(error.to_string().contains("field id 77"), "{error}");
}

#[tokio::test]
async fn keys_that_do_not_fit_the_budget_are_not_loaded() {
    let mut t = Table::new(id_and_s());
    t.budget = 64 << 20;
    let data = batch(vec![(1, "id", longs([1])), (2, "s", texts([None]))]);
    let mut delete = (*t.equality("d", &batch(vec![(1, "id", longs([1]))]), &[1], 2)).clone();
    delete.record_count = 10_000_000;
    let error = t.rewrite(&group(vec![task(t.data("a", &data, 1), &[&Arc::new(delete)])])).await;
    let error = error.expect_err("285 MB of keys");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("delete keys 285"), "{error}");
}
