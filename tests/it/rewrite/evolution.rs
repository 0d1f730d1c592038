//! Schema evolution by field id, at every level, and files without ids.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float32Array, Int32Array, ListArray, MapArray, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use icewright::error::ErrorKind;
use serde_json::{Value, json};

use super::table::{Table, batch, field, group, longs, task, text_partition, texts};

fn column(id: i32, name: &str, ty: impl Into<Value>) -> Value {
    json!({"id": id, "name": name, "type": ty.into(), "required": false})
}

async fn rows(t: &Table, data: &arrow::array::RecordBatch) -> Vec<String> {
    t.rewritten_rows(&group(vec![task(t.data("a", data, 1), &[])])).await
}

async fn refusal(t: &Table, data: &arrow::array::RecordBatch) -> icewright::error::Error {
    t.rewrite(&group(vec![task(t.data("a", data, 1), &[])])).await.expect_err("must be refused")
}

#[tokio::test]
async fn columns_are_found_by_id_whatever_their_name_and_place() {
    // b was renamed, a and c swapped their names, d was dropped, e was added.
    let t = Table::new(json!([
        column(5, "e", "string"),
        column(3, "a", "long"),
        column(2, "b2", "long"),
        column(1, "c", "long")
    ]));
    let data =
        batch(vec![(1, "a", longs([1])), (2, "b", longs([2])), (3, "c", longs([3])), (4, "d", texts([Some("gone")]))]);
    assert_eq!(rows(&t, &data).await, ["-|3|2|1"]);
}

#[tokio::test]
async fn allowed_promotions_keep_values() {
    let t = Table::new(json!([column(1, "i", "long"), column(2, "f", "double"), column(3, "d", "decimal(38, 2)")]));
    let decimals = Decimal128Array::from(vec![Some(-12_345), None]).with_precision_and_scale(7, 2).expect("fits");
    let data = batch(vec![
        (1, "i", Arc::new(Int32Array::from(vec![Some(i32::MIN), None]))),
        (2, "f", Arc::new(Float32Array::from(vec![Some(0.5), None]))),
        (3, "d", Arc::new(decimals)),
    ]);
    assert_eq!(rows(&t, &data).await, ["-2147483648|0.5|-123.45", "-|-|-"]);
}

#[tokio::test]
async fn other_type_pairs_are_refused_and_never_null() {
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![1]).with_precision_and_scale(9, 2).expect("fits"));
    for (array, ty) in [
        (dates.clone(), "timestamp"),
        (longs([1]), "int"),
        (ints, "string"),
        (longs([1]), "timestamp"),
        (decimals.clone(), "decimal(9, 3)"),
        (decimals, "decimal(8, 2)"),
        (texts([Some("x")]), "binary"),
        (texts([Some("x")]), "uuid"),
    ] {
        let t = Table::new(json!([column(1, "c", ty)]));
        let error = refusal(&t, &batch(vec![(1, "c", array)])).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{ty}: {error}");
        assert!(error.to_string().contains("column c (field id 1)"), "{error}");
    }
}

fn person(names: Vec<Option<&str>>, ages: Vec<i64>, nulls: Vec<bool>) -> ArrayRef {
    person_with_ids(11, names, ages, nulls)
}

fn person_with_ids(first: i32, names: Vec<Option<&str>>, ages: Vec<i64>, nulls: Vec<bool>) -> ArrayRef {
    let fields: Fields = vec![field(first, "name", DataType::Utf8), field(first + 1, "age", DataType::Int64)].into();
    let names: ArrayRef = Arc::new(StringArray::from(names));
    Arc::new(StructArray::new(fields, vec![names, longs(ages)], Some(nulls.into())))
}

#[tokio::test]
async fn struct_fields_are_found_by_id_and_null_structs_stay_null() {
    // age moved to the front and was renamed, name was dropped and another `name` added.
    let fields = json!([column(12, "years", "long"), column(13, "name", "string")]);
    let t = Table::new(json!([column(1, "p", json!({"type": "struct", "fields": fields}))]));
    let data = batch(vec![(1, "p", person(vec![Some("x"), None, Some("z")], vec![5, 6, 7], vec![true, true, false]))]);
    assert_eq!(rows(&t, &data).await, ["{years: 5, name: -}", "{years: 6, name: -}", "-"]);
}

#[tokio::test]
async fn a_struct_without_a_field_in_common_keeps_its_nulls() {
    let fields = json!([column(14, "new", "string")]);
    let t = Table::new(json!([column(1, "p", json!({"type": "struct", "fields": fields}))]));
    let data = batch(vec![(1, "p", person(vec![Some("x"), None], vec![5, 6], vec![true, false]))]);
    assert_eq!(rows(&t, &data).await, ["{new: -}", "-"]);
}

#[tokio::test]
async fn lists_and_maps_evolve_inside_and_keep_null_and_empty_apart() {
    let list_element = json!({"type": "struct", "fields": [column(13, "added", "long"), column(12, "age", "long")]});
    let map_value = json!({"type": "struct", "fields": [column(33, "added", "long"), column(32, "age", "long")]});
    let list = json!({"type": "list", "element-id": 3, "element": list_element, "element-required": false});
    let map = json!({"type": "map", "key-id": 5, "key": "string", "value-id": 6, "value": map_value, "value-required": false});
    let t = Table::new(json!([column(2, "l", list), column(4, "m", map)]));
    let people =
        |first| person_with_ids(first, vec![Some("a"), None, Some("c")], vec![1, 2, 3], vec![true, false, true]);
    let lists: ArrayRef = Arc::new(ListArray::new(
        Arc::new(field(3, "element", people(11).data_type().clone())),
        OffsetBuffer::new(vec![0, 2, 2, 2, 3].into()),
        people(11),
        Some(NullBuffer::from(vec![true, true, false, true])),
    ));
    let key = field(5, "key", DataType::Utf8).with_nullable(false);
    let entry_fields: Fields = vec![key, field(6, "value", people(31).data_type().clone())].into();
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["k1", "k2", "k3"]));
    let entries = StructArray::new(entry_fields.clone(), vec![keys, people(31)], None);
    let maps: ArrayRef = Arc::new(MapArray::new(
        Arc::new(Field::new("key_value", DataType::Struct(entry_fields), false)),
        OffsetBuffer::new(vec![0, 2, 2, 2, 3].into()),
        entries,
        Some(NullBuffer::from(vec![true, false, true, true])),
        false,
    ));
    let expected = [
        "[{added: -, age: 1}, -]|{k1: {added: -, age: 1}, k2: -}",
        "[]|-",
        "-|{}",
        "[{added: -, age: 3}]|{k3: {added: -, age: 3}}",
    ];
    assert_eq!(rows(&t, &batch(vec![(2, "l", lists), (4, "m", maps)])).await, expected);
}

#[tokio::test]
async fn a_missing_required_column_is_an_error_unless_it_has_a_default() {
    let required = json!({"id": 2, "name": "r", "type": "long", "required": true});
    let t = Table::new(json!([column(1, "id", "long"), required]));
    let data = batch(vec![(1, "id", longs([1]))]);
    let error = refusal(&t, &data).await;
    assert_eq!(error.kind(), ErrorKind::DataInvalid, "{error}");
    let with_default = json!({"id": 2, "name": "r", "type": "long", "required": true, "initial-default": 9});
    let nested = json!({"type": "struct", "fields": [
        {"id": 12, "name": "age", "type": "long", "required": false},
        {"id": 15, "name": "level", "type": "string", "required": false, "initial-default": "low"}]});
    let t = Table::new(json!([column(1, "id", "long"), with_default, column(3, "p", nested)]));
    let people = person(vec![None], vec![5], vec![true]);
    assert_eq!(rows(&t, &batch(vec![(1, "id", longs([1])), (3, "p", people)])).await, ["1|9|{age: 5, level: low}"]);
}

#[tokio::test]
async fn null_in_a_required_column_is_refused() {
    let t = Table::new(json!([{"id": 1, "name": "s", "type": "string", "required": true}]));
    let error = refusal(&t, &batch(vec![(1, "s", texts([Some("x"), None]))])).await;
    assert_eq!(error.kind(), ErrorKind::DataInvalid, "{error}");
}

#[tokio::test]
async fn files_without_ids_need_a_name_mapping() {
    let schema = json!([column(1, "id", "long"), column(2, "s", "string"), column(3, "extra", "long")]);
    let data = batch(vec![(0, "s_old", texts([Some("x")])), (0, "other", longs([5])), (0, "id", longs([1]))]);
    let error = refusal(&Table::new(schema.clone()), &data).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("schema.name-mapping.default"), "{error}");
    let mapping = r#"[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["s", "s_old"]}]"#;
    let t = Table::new(schema).property("schema.name-mapping.default", mapping);
    assert_eq!(rows(&t, &data).await, ["1|x|-"]);
}

#[tokio::test]
async fn name_mappings_reach_into_structs_and_lists() {
    let fields = json!([column(12, "age", "long")]);
    let list = json!({"type": "list", "element-id": 21, "element": "long", "element-required": false});
    let mapping = r#"[{"field-id": 1, "names": ["p"], "fields": [{"field-id": 12, "names": ["age"]}]},
                      {"field-id": 20, "names": ["l"], "fields": [{"field-id": 21, "names": ["element"]}]}]"#;
    let t = Table::new(json!([column(1, "p", json!({"type": "struct", "fields": fields})), column(20, "l", list)]))
        .property("schema.name-mapping.default", mapping);
    let plain: Fields =
        vec![Field::new("name", DataType::Int64, true), Field::new("age", DataType::Int64, true)].into();
    let people: ArrayRef = Arc::new(StructArray::new(plain, vec![longs([8]), longs([9])], None));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::new(vec![0, 2].into()), longs([1, 2]), None));
    assert_eq!(rows(&t, &batch(vec![(0, "p", people), (0, "l", lists)])).await, ["{age: 9}|[1, 2]"]);
}

#[tokio::test]
async fn identity_partition_values_fill_in_for_absent_columns() {
    let mapping = r#"[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["day"]}]"#;
    let t = Table::new(json!([column(1, "id", "long"), column(2, "day", "string")]))
        .partitioned(json!([{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}]))
        .property("schema.name-mapping.default", mapping);
    let in_partition = |name: &str, data: &arrow::array::RecordBatch, value: Option<&str>| {
        let mut file = t.data(name, data, 1);
        file.partition = text_partition(1, value);
        let mut g = group(vec![task(file, &[])]);
        g.output_spec_id = 1;
        g
    };
    let migrated = batch(vec![(0, "id", longs([1]))]);
    assert_eq!(t.rewritten_rows(&in_partition("a", &migrated, Some("2025-04-01"))).await, ["1|2025-04-01"]);
    assert_eq!(t.rewritten_rows(&in_partition("b", &migrated, None)).await, ["1|-"]);
    // A stored column wins over the tuple.
    let stored = batch(vec![(1, "id", longs([1])), (2, "day", texts([Some("stored")]))]);
    assert_eq!(t.rewritten_rows(&in_partition("c", &stored, Some("2025-04-01"))).await, ["1|stored"]);
}

#[tokio::test]
async fn a_file_without_any_of_the_columns_gives_as_many_null_rows() {
    let t = Table::new(json!([column(1, "id", "long")]));
    assert_eq!(rows(&t, &batch(vec![(9, "gone", longs([1, 2, 3]))])).await, ["-", "-", "-"]);
}
