//! The doubles must behave like what they stand for.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};
use iceberg::{NamespaceIdent, TableCreation, TableIdent, TableRequirement, TableUpdate};

use super::*;
use crate::catalog::{Catalog, CommitOutcome};
use crate::error::{ErrorKind, Result};
use crate::storage::Store;

fn ident() -> TableIdent {
    TableIdent::new(NamespaceIdent::from_strs(["db", "deep"]).unwrap(), "t".into())
}

fn creation() -> TableCreation {
    let id = NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long));
    let schema = Schema::builder().with_fields([id.into()]).build().unwrap();
    TableCreation::builder().name("t".into()).location("s3://b/db/t".into()).schema(schema).build()
}

fn set(value: &str) -> Vec<TableUpdate> {
    vec![TableUpdate::SetProperties { updates: [("k".to_owned(), value.to_owned())].into() }]
}

async fn value(catalog: &MemoryCatalog) -> Option<String> {
    catalog.load_table(&ident()).await.unwrap().metadata.properties().get("k").cloned()
}

#[tokio::test]
async fn commits_end_as_scripted() {
    let store = MemoryStore::new();
    let catalog = MemoryCatalog::new(Arc::new(store.clone()));
    let table = catalog.create_table(&ident(), creation()).unwrap();
    assert_eq!(store.paths(), std::slice::from_ref(&table.metadata_location));
    let uuid = table.metadata.uuid();
    let require = |uuid| vec![TableRequirement::UuidMatch { uuid }];

    let outcome = catalog.commit_table(&ident(), require(uuid), set("1"), &|| Ok(())).await;
    let CommitOutcome::Committed(after) = outcome else { panic!("{outcome:?}") };
    assert_eq!(after.metadata.metadata_log()[0].metadata_file, table.metadata_location);
    assert_eq!(value(&catalog).await.as_deref(), Some("1"));

    let stale = catalog.commit_table(&ident(), require(uuid::Uuid::nil()), set("2"), &|| Ok(())).await;
    assert!(matches!(stale, CommitOutcome::Conflict(_)), "{stale:?}");
    catalog.script([
        CommitFault::Conflict,
        CommitFault::Refused,
        CommitFault::UnknownNotApplied,
        CommitFault::UnknownLate,
        CommitFault::UnknownApplied,
    ]);
    let mut kinds = Vec::new();
    for i in 3..8 {
        kinds.push(match catalog.commit_table(&ident(), require(uuid), set(&i.to_string()), &|| Ok(())).await {
            CommitOutcome::Conflict(_) => "conflict",
            CommitOutcome::Refused(_) | CommitOutcome::NotSent(_) => "refused",
            CommitOutcome::Unknown(_) => "unknown",
            CommitOutcome::Committed(_) => "committed",
        });
    }
    assert_eq!(kinds, ["conflict", "refused", "unknown", "unknown", "unknown"]);
    assert_eq!(value(&catalog).await.as_deref(), Some("7"), "only the last one was applied");
    assert_eq!(catalog.deliver_late().await.unwrap(), 1);
    assert_eq!(value(&catalog).await.as_deref(), Some("6"), "the late one arrived after all");

    let racer = catalog.clone();
    catalog.script([CommitFault::After(Arc::new(move || {
        let racer = racer.clone();
        Box::pin(async move {
            let _ = racer.commit_table(&ident(), vec![], set("race"), &|| Ok(())).await;
        })
    }))]);
    let _ = catalog.commit_table(&ident(), vec![], vec![], &|| Ok(())).await;
    assert_eq!(value(&catalog).await.as_deref(), Some("race"));

    catalog.fail_loads(1);
    assert_eq!(catalog.load_table(&ident()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(catalog.load_table(&ident()).await.is_ok());
    let db = NamespaceIdent::new("db".into());
    assert_eq!(catalog.list_namespaces(None).await.unwrap(), std::slice::from_ref(&db));
    assert_eq!(catalog.list_namespaces(Some(&db)).await.unwrap(), [ident().namespace().clone()]);
    assert_eq!(catalog.list_tables(ident().namespace()).await.unwrap(), [ident()]);
    assert_eq!(catalog.list_tables(&db).await.unwrap(), []);
    catalog.drop_table(&ident());
    assert_eq!(catalog.load_table(&ident()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn the_memory_store_keeps_keys_apart_and_overwrites_nothing() {
    let store = MemoryStore::new();
    store.set_now_ms(5);
    for key in ["t/a", "t//a", "t_2/a"] {
        store.write(&format!("s3://b/{key}"), Bytes::from_static(b"x")).await.unwrap();
    }
    assert!(store.write("s3a://b/t/a", Bytes::new()).await.is_err(), "another spelling of the same object");
    store.set_last_modified("s3://b/t/a", None);
    let list = |order, prefix: &'static str| {
        store.set_list_order(order);
        let files = store.list(prefix).map_ok(|f| (f.path, f.last_modified_ms));
        async move { files.try_collect::<Vec<_>>().await.unwrap() }
    };
    let expected = [("s3a://b/t//a".to_owned(), Some(5)), ("s3a://b/t/a".to_owned(), None)];
    assert_eq!(list(ListOrder::Sorted, "s3a://b/t").await, expected);
    let mut reversed = expected.to_vec();
    reversed.reverse();
    assert_eq!(list(ListOrder::Reversed, "s3a://b/t/").await, reversed);
    assert!(store.delete_batch(&["s3n://b/t/a".into()]).await[0].is_ok());
    assert_eq!(store.paths(), ["s3://b/t//a", "s3://b/t_2/a"]);
    assert_eq!(store.deleted(), ["s3n://b/t/a"]);
}

#[tokio::test]
async fn faults_hit_the_chosen_calls() {
    let memory = MemoryStore::new();
    let store = FaultyStore::new(Arc::new(memory.clone()));
    store.inject(Operation::Close, 0..1, StoreFault::do_and_fail());
    assert!(store.write("/d/a", Bytes::from_static(b"abc")).await.is_err());
    assert_eq!(memory.paths(), ["/d/a"], "written, though an error was reported");
    store.inject_on("/b", Operation::Create, 1..2, StoreFault::fail());
    store.write("/d/b1", Bytes::new()).await.unwrap();
    assert!(store.write("/d/b2", Bytes::new()).await.is_err());
    store.write("/d/b3", Bytes::new()).await.unwrap();

    store.inject(Operation::Read, 0..1, StoreFault::Short);
    assert_eq!(store.read("/d/a").await.unwrap(), "ab");
    assert_eq!(store.read("/d/a").await.unwrap(), "abc");
    store.inject(Operation::List, 0..1, StoreFault::Short);
    assert!(store.list("/d").try_collect::<Vec<_>>().await.is_err());
    let racing = memory.clone();
    store.inject(
        Operation::List,
        0..1,
        StoreFault::After(Arc::new(move || {
            racing.put("/d/late", "x");
            Box::pin(async {})
        })),
    );
    assert_eq!(store.list("/d").try_collect::<Vec<_>>().await.unwrap().len(), 4);

    store.inject(Operation::Delete, 0..1, StoreFault::Throttle);
    let paths = ["/d/a".to_owned(), "/d/b1".to_owned(), "/d/b3".to_owned()];
    let done: Vec<bool> = store.delete_batch(&paths).await.iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, false, true]);
    assert_eq!(memory.paths(), ["/d/b1", "/d/late"]);
    assert_eq!((store.count(Operation::Delete), store.count(Operation::List)), (1, 2));
}
