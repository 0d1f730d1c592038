//! Failures that tests of clients ask for.

use std::time::Duration;

use iceberg::{NamespaceIdent, TableIdent};
use icewright::sandbox::catalog::Fault;
use serde_json::json;

use super::client::{Catalog, error_type, set_property};

#[tokio::test]
async fn faults_happen_before_or_after_the_commit() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    let cases = [
        (Fault::Conflict, Some(409), "CommitFailedException", false),
        (Fault::FailBefore(500), Some(500), "CommitStateUnknownException", false),
        (Fault::FailAfter(503), Some(503), "ServiceUnavailableException", true),
        (Fault::FailAfter(504), Some(504), "CommitStateUnknownException", true),
        (Fault::DropAfter, None, "", true),
    ];
    for (i, (fault, status, kind, applied)) in cases.into_iter().enumerate() {
        let key = format!("k{i}");
        catalog.faults(|f| f.inject(None, 1, fault));
        let body = json!({"requirements": [], "updates": [set_property(&key, "1")]});
        let answer = catalog.try_call("POST", "/v1/namespaces/ns/tables/t", Some(&body)).await;
        match status {
            Some(status) => {
                let (got, body) = answer.expect("an answer");
                assert_eq!((got, error_type(&body)), (status, kind), "{fault:?}");
            }
            None => {
                let e = answer.expect_err("no answer");
                assert!(e.is_request() && e.status().is_none(), "not even a status: {e:?}");
            }
        }
        let properties = catalog.load("ns", "t").await["metadata"]["properties"].clone();
        assert_eq!(properties.get(&key).is_some(), applied, "{fault:?}");
    }
    assert_eq!(catalog.faults(|f| f.remaining()), 0);
    assert_eq!(catalog.commit("t", json!([]), json!([set_property("fine", "1")])).await.0, 200);
}

#[tokio::test]
async fn a_fault_waits_for_its_own_table() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    for t in ["a", "b"] {
        catalog.table("ns", t, json!({})).await;
    }
    let b = TableIdent::new(NamespaceIdent::new("ns".into()), "b".into());
    catalog.faults(|f| f.inject(Some(b), 2, Fault::Conflict));
    let update = || json!([set_property("k", "v")]);
    assert_eq!(catalog.commit("a", json!([]), update()).await.0, 200);
    assert_eq!(catalog.commit("b", json!([]), update()).await.0, 409);
    assert_eq!(catalog.commit("b", json!([]), update()).await.0, 409);
    assert_eq!(catalog.commit("b", json!([]), update()).await.0, 200);
    catalog.faults(|f| {
        f.inject(None, 5, Fault::Conflict);
        f.clear();
    });
    assert_eq!(catalog.commit("a", json!([]), update()).await.0, 200);
}

#[tokio::test]
async fn a_delayed_commit_happens_though_its_client_gave_up() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    catalog.faults(|f| f.inject(None, 1, Fault::Delay(Duration::from_millis(300))));
    let impatient = reqwest::Client::builder().timeout(Duration::from_millis(100)).build().expect("client");
    let body = json!({"requirements": [], "updates": [set_property("late", "1")]});
    let url = format!("{}/v1/namespaces/ns/tables/t", catalog.uri);
    let e = impatient.post(url).json(&body).send().await.expect_err("a timeout");
    assert!(e.is_timeout(), "{e}");
    loop {
        if catalog.load("ns", "t").await["metadata"]["properties"]["late"] == json!("1") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
