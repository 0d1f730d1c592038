//! What is refused, and that a failed rewrite leaves nothing behind.

use std::sync::Arc;

use futures::future::BoxFuture;
use iceberg::spec::DataFileFormat;
use icewright::error::{Error, ErrorKind};
use icewright::plan::FileGroup;
use icewright::testing::{Operation, StoreFault};
use serde_json::json;

use super::table::{Table, batch, group, longs, task, text_partition};

fn table() -> Table {
    Table::new(json!([{"id": 1, "name": "id", "type": "long", "required": false}]))
}

fn one_file(t: &Table) -> FileGroup {
    group(vec![task(t.data("a", &batch(vec![(1, "id", longs(0..1000))]), 1), &[])])
}

/// The error of a rewrite that must fail and leave the store as it was.
async fn failure(t: &Table, g: &FileGroup) -> Error {
    let before = t.store.paths();
    let error = t.rewrite(g).await.expect_err("the rewrite must fail");
    assert_eq!(t.store.paths(), before, "outputs of a failed rewrite must be gone: {error}");
    error
}

#[tokio::test]
async fn tables_that_would_lose_something_are_refused_with_the_cure() {
    for (t, word) in [
        (table().format_version(3), "version 3"),
        (table().property("encryption.key-id", "k"), "encryption.key-id"),
        (table().property("write.location-provider.impl", "com.x.Y"), "com.x.Y"),
        (table().property("write.object-storage.path", "s3://x"), "write.data.path"),
        (table().property("write.folder-storage.path", "s3://x"), "write.data.path"),
        (table().property("write.format.default", "orc"), "orc"),
        (table().property("write.parquet.compression-codec", "lzo"), "lzo"),
    ] {
        let error = failure(&t, &one_file(&t)).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    let t = table().property("write.parquet.page-size-bytes", "lots");
    assert_eq!(failure(&t, &one_file(&t)).await.kind(), ErrorKind::DataInvalid);
}

#[tokio::test]
async fn inputs_that_are_no_plain_parquet_are_refused() {
    let t = table();
    let with = |change: &dyn Fn(&mut icewright::table::FileEntry)| {
        let mut file = t.data("a", &batch(vec![(1, "id", longs([1]))]), 1);
        change(&mut file);
        group(vec![task(file, &[])])
    };
    for g in [
        with(&|f| f.file_format = Some(DataFileFormat::Orc)),
        with(&|f| f.file_format = Some(DataFileFormat::Avro)),
        with(&|f| f.encrypted = true),
    ] {
        assert_eq!(failure(&t, &g).await.kind(), ErrorKind::Unsupported);
    }
    let mut vector = (*t.positions("dv", &[("x", 1)], 1)).clone();
    vector.file_format = Some(DataFileFormat::Puffin);
    let file = t.data("b", &batch(vec![(1, "id", longs([1]))]), 1);
    let error = failure(&t, &group(vec![task(file, &[&Arc::new(vector)])])).await;
    assert!(error.to_string().contains("deletion vector"), "{error}");
}

#[tokio::test]
async fn plans_that_would_double_or_move_rows_are_refused() {
    let t = table();
    let file = || t.data("a", &batch(vec![(1, "id", longs([1]))]), 1);
    let twice = group(vec![task(file(), &[]), task(file(), &[])]);
    assert!(failure(&t, &twice).await.to_string().contains("twice"));
    let mut elsewhere = group(vec![task(file(), &[])]);
    elsewhere.partition = Some(text_partition(0, Some("x")));
    assert!(failure(&t, &elsewhere).await.to_string().contains("another partition"));
    let mut no_spec = group(vec![task(file(), &[])]);
    no_spec.output_spec_id = 7;
    assert_eq!(failure(&t, &no_spec).await.kind(), ErrorKind::DataInvalid);
}

#[tokio::test]
async fn a_row_too_few_or_too_many_is_refused_and_outputs_deleted() {
    let t = table();
    for listed in [999, 1001] {
        let mut file = t.data("a", &batch(vec![(1, "id", longs(0..1000))]), 1);
        file.record_count = listed;
        let good = t.data("b", &batch(vec![(1, "id", longs(0..1000))]), 1);
        let error = failure(&t, &group(vec![task(good, &[]), task(file, &[])])).await;
        assert_eq!(error.kind(), ErrorKind::DataInvalid, "{error}");
        assert!(error.to_string().contains(&listed.to_string()), "{error}");
    }
}

#[tokio::test]
async fn an_answer_of_another_length_is_an_error() {
    let t = table();
    let g = one_file(&t);
    t.faulty.inject(Operation::ReadRange, 0..usize::MAX, StoreFault::Short);
    t.faulty.inject(Operation::Read, 0..usize::MAX, StoreFault::Short);
    assert_eq!(failure(&t, &g).await.kind(), ErrorKind::DataInvalid);
}

#[tokio::test]
async fn damaged_inputs_are_errors_and_no_panics() {
    let t = table();
    let bytes = super::table::parquet(&batch(vec![(1, "id", longs(0..1000))]));
    for at in [8, bytes.len() / 2, bytes.len() - 30, bytes.len() - 6] {
        let mut damaged = bytes.to_vec();
        for byte in &mut damaged[at..at + 4] {
            *byte = !*byte;
        }
        let file = t.raw("a", &damaged.into(), 1000, 1);
        // Flipped bytes in the values themselves cannot be told; everything else must be an error.
        let _ = t
            .rewrite(&group(vec![task(file, &[])]))
            .await
            .map_err(|e| assert_ne!(e.kind(), ErrorKind::Internal, "{e}"));
    }
    for bytes in [&b""[..], b"PAR1", b"PAR1PAR1PAR1"] {
        let file = t.raw("b", &bytes::Bytes::from_static(bytes), 1, 1);
        assert_eq!(failure(&t, &group(vec![task(file, &[])])).await.kind(), ErrorKind::DataInvalid);
    }
}

#[tokio::test]
async fn a_store_that_fails_is_reported_as_such() {
    let t = table();
    let g = one_file(&t);
    t.faulty.inject(Operation::Write, 0..usize::MAX, StoreFault::fail());
    let error = failure(&t, &g).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let t = table();
    let g = one_file(&t);
    let mut missing = t.data("gone", &batch(vec![(1, "id", longs([1]))]), 1);
    missing.file_path = "mem://lake/t/data/never-written".into();
    let mut both = g.clone();
    both.tasks.push(task(missing, &[]));
    assert_eq!(failure(&t, &both).await.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn cancelling_leaves_nothing_behind() {
    let t = table();
    t.cancel.cancel();
    assert_eq!(failure(&t, &one_file(&t)).await.kind(), ErrorKind::Cancelled);
    // While an output is being written.
    let t = table();
    let g = one_file(&t);
    let cancel = t.cancel.clone();
    let cancelled = Arc::new(move || {
        cancel.cancel();
        Box::pin(async {}) as BoxFuture<'static, ()>
    });
    t.faulty.inject(Operation::Create, 0..1, StoreFault::After(cancelled));
    assert_eq!(failure(&t, &g).await.kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn groups_wait_for_memory_instead_of_failing() {
    let t = table();
    let groups: Vec<FileGroup> = (0..6)
        .map(|i| group(vec![task(t.data(&format!("f{i}"), &batch(vec![(1, "id", longs(0..1000))]), 1), &[])]))
        .collect();
    let mut context = t.context();
    // About what one group needs.
    context.memory = std::sync::Arc::new(icewright::rewrite::MemoryBudget::new(25 << 20));
    let running = groups.iter().map(|g| icewright::rewrite::rewrite_file_group(&context, g));
    for result in futures::future::join_all(running).await {
        assert_eq!(result.expect("each has its turn").output_rows, 1000);
    }
    assert_eq!(context.memory.used(), 0);
    context.memory = std::sync::Arc::new(icewright::rewrite::MemoryBudget::new(1 << 20));
    let error = icewright::rewrite::rewrite_file_group(&context, &groups[0]).await.expect_err("never fits");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

#[tokio::test]
async fn an_empty_group_is_an_empty_result() {
    let t = table();
    let mut nothing = group(Vec::new());
    nothing.partition = one_file(&t).partition;
    let result = t.rewrite(&nothing).await.expect("nothing to do");
    assert_eq!((result.added.len(), result.input_rows), (0, 0));
}

#[tokio::test]
async fn the_same_group_of_the_same_run_gets_new_names() {
    let t = table();
    let g = one_file(&t);
    let first = t.rewrite(&g).await.expect("the first time");
    let second = t.rewrite(&g).await.expect("the second time");
    assert_ne!(first.added[0].file_path(), second.added[0].file_path());
    assert_eq!(t.rows(&first.added[0]), t.rows(&second.added[0]));
}
