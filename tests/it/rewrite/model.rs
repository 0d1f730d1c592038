//! Random rows and deletes against the plainest possible model.

use std::sync::Arc;

use icewright::plan::RewriteTask;
use icewright::table::FileEntry;
use proptest::prelude::*;
use serde_json::json;

use super::table::{Table, batch, group, task, texts};

type Row = (Option<i64>, Option<u8>);

#[derive(Debug, Clone)]
enum Delete {
    /// Keys by id, by text, or by both.
    Equality { columns: u8, keys: Vec<Row>, sequence: i64 },
    /// File and position.
    Positions { rows: Vec<(usize, i64)>, sequence: i64 },
}

#[derive(Debug, Clone)]
struct File {
    rows: Vec<Row>,
    sequence: i64,
    /// Which deletes the plan lists, by index modulo its length.
    listed: Vec<bool>,
}

fn row() -> impl Strategy<Value = Row> {
    (proptest::option::weighted(0.8, 0i64..6), proptest::option::weighted(0.8, 0u8..4))
}

fn delete() -> impl Strategy<Value = Delete> {
    prop_oneof![
        (0u8..3, proptest::collection::vec(row(), 1..5), 0i64..8)
            .prop_map(|(columns, keys, sequence)| Delete::Equality { columns, keys, sequence }),
        (proptest::collection::vec((0usize..6, 0i64..25), 1..20), 0i64..8)
            .prop_map(|(rows, sequence)| Delete::Positions { rows, sequence }),
    ]
}

fn file() -> impl Strategy<Value = File> {
    let listed = prop_oneof![3 => Just(vec![true]), 1 => proptest::collection::vec(any::<bool>(), 1..6)];
    (proptest::collection::vec(row(), 1..25), 0i64..8, listed).prop_map(|(rows, sequence, listed)| File {
        rows,
        sequence,
        listed,
    })
}

fn matches(columns: u8, row: &Row, key: &Row) -> bool {
    match columns {
        0 => row.0 == key.0,
        1 => row.1 == key.1,
        _ => row == key,
    }
}

fn is_deleted(deletes: &[Delete], files: &[File], file: usize, position: usize) -> bool {
    let File { rows, sequence: data_sequence, listed } = &files[file];
    deletes.iter().enumerate().filter(|(i, _)| listed[i % listed.len()]).any(|(_, delete)| match delete {
        Delete::Equality { columns, keys, sequence } => {
            sequence > data_sequence && keys.iter().any(|key| matches(*columns, &rows[position], key))
        }
        Delete::Positions { rows, sequence } => sequence >= data_sequence && rows.contains(&(file, position as i64)),
    })
}

fn as_batch(rows: &[Row], columns: u8) -> arrow::array::RecordBatch {
    let ids: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from_iter(rows.iter().map(|r| r.0)));
    let names: Vec<Option<String>> = rows.iter().map(|r| r.1.map(|b| format!("key-{b}"))).collect();
    let names = texts(names.iter().map(Option::as_deref));
    match columns {
        0 => batch(vec![(1, "id", ids)]),
        1 => batch(vec![(2, "s", names)]),
        _ => batch(vec![(1, "id", ids), (2, "s", names)]),
    }
}

fn tasks(t: &Table, files: &[File], deletes: &[Delete]) -> Vec<RewriteTask> {
    let data: Vec<FileEntry> =
        files.iter().enumerate().map(|(i, f)| t.data(&format!("f{i}"), &as_batch(&f.rows, 2), f.sequence)).collect();
    let path = |i: usize| data.get(i).map_or_else(|| format!("mem://elsewhere/{i}"), |f| f.file_path.to_string());
    let delete_files: Vec<Arc<FileEntry>> = deletes
        .iter()
        .enumerate()
        .map(|(i, delete)| match delete {
            Delete::Equality { columns, keys, sequence } => {
                let ids: &[i32] = match columns {
                    0 => &[1],
                    1 => &[2],
                    _ => &[1, 2],
                };
                t.equality(&format!("e{i}"), &as_batch(keys, *columns), ids, *sequence)
            }
            Delete::Positions { rows, sequence } => {
                let paths: Vec<String> = rows.iter().map(|(f, _)| path(*f)).collect();
                let rows: Vec<(&str, i64)> = paths.iter().map(String::as_str).zip(rows.iter().map(|r| r.1)).collect();
                t.positions(&format!("p{i}"), &rows, *sequence)
            }
        })
        .collect();
    data.into_iter()
        .zip(files)
        .map(|(entry, f)| {
            let listed: Vec<&Arc<FileEntry>> =
                delete_files.iter().enumerate().filter(|(i, _)| f.listed[i % f.listed.len()]).map(|(_, d)| d).collect();
            task(entry, &listed)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_live_rows_are_the_models(
        files in proptest::collection::vec(file(), 1..6),
        deletes in proptest::collection::vec(delete(), 0..6),
        threads in 1usize..4,
    ) {
        let mut t = Table::new(json!([
            {"id": 1, "name": "id", "type": "long", "required": false},
            {"id": 2, "name": "s", "type": "string", "required": false},
        ]));
        t.threads = threads;
        let mut expected = Vec::new();
        for (i, file) in files.iter().enumerate() {
            for (position, row) in file.rows.iter().enumerate() {
                if !is_deleted(&deletes, &files, i, position) {
                    let id = row.0.map_or("-".into(), |v| v.to_string());
                    let text = row.1.map_or("-".into(), |v| format!("key-{v}"));
                    expected.push(format!("{id}|{text}"));
                }
            }
        }
        let g = group(tasks(&t, &files, &deletes));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        prop_assert_eq!(runtime.block_on(t.rewritten_rows(&g)), expected);
    }
}
