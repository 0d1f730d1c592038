//! Commits: requirements, updates, races, transactions.

use serde_json::{Value, json};

use super::client::{
    Catalog, assert_ref, error_type, now_ms, path, properties, schema, set_property, set_ref, snapshot,
};

#[tokio::test]
async fn a_commit_needs_all_its_requirements() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    let uuid = catalog.table("ns", "t", json!({})).await["table-uuid"].clone();
    let before = catalog.load("ns", "t").await;
    let wrong = "00000000-0000-0000-0000-000000000001";
    for requirement in [
        json!({"type": "assert-create"}),
        json!({"type": "assert-table-uuid", "uuid": wrong}),
        json!({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}),
        json!({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 7}),
        json!({"type": "assert-current-schema-id", "current-schema-id": 7}),
        json!({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 7}),
        json!({"type": "assert-default-spec-id", "default-spec-id": 7}),
        json!({"type": "assert-default-sort-order-id", "default-sort-order-id": 7}),
    ] {
        let fine = json!({"type": "assert-table-uuid", "uuid": uuid});
        let (status, body) = catalog.commit("t", json!([fine, requirement]), json!([set_property("k", "v")])).await;
        if requirement["type"] == "assert-create" {
            // Together with another requirement this is no create at all.
            assert_eq!(status, 409, "{body}");
        } else {
            assert_eq!((status, error_type(&body)), (409, "CommitFailedException"), "{requirement}");
        }
    }
    for (requirement, update, named) in [
        (json!({"type": "assert-moon-phase"}), set_property("k", "v"), "assert-moon-phase"),
        (assert_ref("main", None), json!({"action": "paint-it-black"}), "paint-it-black"),
        (assert_ref("main", None), json!({"action": "set-current-schema", "schema-id": 9}), "set-current-schema"),
        (assert_ref("main", None), set_ref("main", "branch", 5), "set-snapshot-ref"),
    ] {
        let (status, body) = catalog.commit("t", json!([requirement]), json!([update])).await;
        assert_eq!((status, error_type(&body)), (400, "BadRequestException"));
        assert!(body["error"]["message"].as_str().is_some_and(|m| m.contains(named)), "{body}");
    }
    assert_eq!(catalog.load("ns", "t").await, before);
    assert_eq!(catalog.commit("t", json!([]), json!([])).await.0, 200, "nothing to do is no error");
    assert_eq!(catalog.load("ns", "t").await, before);
    assert_eq!(catalog.commit("none", json!([]), json!([])).await.0, 404);
}

#[tokio::test]
async fn refs_of_every_version_are_kept() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    for version in [1, 2] {
        let t = format!("v{version}");
        catalog.table("ns", &t, json!({"format-version": version.to_string()})).await;
        let updates = json!([snapshot(1, None, version - 1, now_ms()), set_ref("main", "branch", 1)]);
        let (status, body) = catalog.commit(&t, json!([assert_ref("main", None)]), updates).await;
        assert_eq!(status, 200, "{body}");
        let tag = json!({"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": 1, "max-ref-age-ms": 5});
        let made = json!([tag, set_ref("side", "branch", 1)]);
        let (status, body) = catalog.commit(&t, json!([assert_ref("t", None)]), made.clone()).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(catalog.commit(&t, json!([assert_ref("t", None)]), made).await.0, 409);
        let (status, body) =
            catalog.commit(&t, json!([assert_ref("t", Some(1))]), json!([set_property("k", "v")])).await;
        assert_eq!(status, 200, "{body}");
        let remove = json!([{"action": "remove-snapshot-ref", "ref-name": "side"}]);
        assert_eq!(catalog.commit(&t, json!([]), remove).await.0, 200);
        let refs = catalog.load("ns", &t).await["metadata"]["refs"].clone();
        assert_eq!(refs["t"], json!({"type": "tag", "snapshot-id": 1, "max-ref-age-ms": 5}));
        assert_eq!(refs["main"], json!({"type": "branch", "snapshot-id": 1}));
        assert_eq!(refs.as_object().map(|r| r.len()), Some(2));
    }
    let upgrade = json!([{"action": "upgrade-format-version", "format-version": 2}]);
    let (status, body) = catalog.commit("v1", json!([]), upgrade).await;
    assert_eq!((status, &body["metadata"]["format-version"]), (200, &json!(2)));
    assert_eq!(body["metadata"]["refs"]["t"]["snapshot-id"], json!(1));
    let downgrade = json!([{"action": "upgrade-format-version", "format-version": 1}]);
    assert_eq!(catalog.commit("v1", json!([]), downgrade).await.0, 400);
}

#[tokio::test]
async fn an_overtaken_snapshot_is_a_conflict() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    let first = json!([snapshot(1, None, 1, now_ms()), set_ref("main", "branch", 1), set_ref("side", "branch", 1)]);
    assert_eq!(catalog.commit("t", json!([]), first).await.0, 200);
    let main = json!([snapshot(2, Some(1), 2, now_ms()), set_ref("main", "branch", 2)]);
    assert_eq!(catalog.commit("t", json!([assert_ref("main", Some(1))]), main).await.0, 200);
    let side = json!([snapshot(3, Some(1), 2, now_ms()), set_ref("side", "branch", 3)]);
    let (status, body) = catalog.commit("t", json!([assert_ref("side", Some(1))]), side).await;
    assert_eq!((status, error_type(&body)), (409, "CommitFailedException"));
}

#[tokio::test]
async fn removed_snapshots_take_their_refs_and_statistics_along() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    for id in [1, 2] {
        let parent = (id > 1).then(|| id - 1);
        let statistics = json!({"action": "set-statistics", "snapshot-id": id, "statistics": {
            "snapshot-id": id, "statistics-path": format!("file:///nowhere/{id}.stats"), "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1, "blob-metadata": []}});
        let updates = json!([snapshot(id, parent, id, now_ms()), set_ref("main", "branch", id), statistics]);
        let (status, body) = catalog.commit("t", json!([]), updates).await;
        assert_eq!(status, 200, "{body}");
    }
    assert_eq!(catalog.commit("t", json!([]), json!([set_ref("old", "tag", 1)])).await.0, 200);
    let remove = json!([{"action": "remove-snapshots", "snapshot-ids": [1]}]);
    let (status, body) = catalog.commit("t", json!([]), remove).await;
    assert_eq!(status, 200, "{body}");
    let metadata = &body["metadata"];
    assert_eq!(metadata["snapshots"].as_array().map(Vec::len), Some(1));
    assert_eq!(metadata["statistics"].as_array().map(Vec::len), Some(1));
    assert_eq!(metadata["statistics"][0]["snapshot-id"], json!(2));
    assert_eq!(metadata["refs"], json!({"main": {"type": "branch", "snapshot-id": 2}}));
}

#[tokio::test]
async fn racing_commits_are_applied_one_after_another() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    let catalog = std::sync::Arc::new(catalog);
    let writers: Vec<_> = (0..8)
        .map(|i| {
            let catalog = catalog.clone();
            tokio::spawn(async move {
                let mut conflicts = 0;
                loop {
                    let current = catalog.load("ns", "t").await["metadata"].clone();
                    let names: Vec<String> = current["schemas"]
                        .as_array()
                        .and_then(|s| s.last())
                        .and_then(|s| s["fields"].as_array())
                        .map(|f| f.iter().filter_map(|f| f["name"].as_str().map(str::to_string)).collect())
                        .expect("fields");
                    let own = format!("c{i}");
                    let columns: Vec<&str> = names.iter().map(String::as_str).chain([own.as_str()]).collect();
                    let updates = json!([
                        {"action": "add-schema", "schema": schema(&columns)},
                        {"action": "set-current-schema", "schema-id": -1},
                    ]);
                    let id = current["current-schema-id"].clone();
                    let requirement = json!([{"type": "assert-current-schema-id", "current-schema-id": id}]);
                    match catalog.commit("t", requirement, updates).await.0 {
                        200 => return conflicts,
                        409 => conflicts += 1,
                        other => panic!("status {other}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("writer");
    }
    let metadata = catalog.load("ns", "t").await["metadata"].clone();
    assert_eq!(metadata["current-schema-id"], json!(8));
    assert_eq!(metadata["last-column-id"], json!(10));
    assert_eq!(metadata["schemas"].as_array().map(Vec::len), Some(9));
    assert_eq!(metadata["metadata-log"].as_array().map(Vec::len), Some(8));
}

#[tokio::test]
async fn a_transaction_changes_one_table() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "a", json!({})).await;
    let change = |table: &str, requirements: Value, key: &str| {
        json!({"identifier": {"namespace": ["ns"], "name": table},
        "requirements": requirements, "updates": [set_property(key, "1")]})
    };
    let transaction =
        async |changes: &[Value]| catalog.post("/v1/transactions/commit", json!({"table-changes": changes})).await;
    let (status, answer) = transaction(&[change("a", json!([assert_ref("main", Some(5))]), "x")]).await;
    assert_eq!((status, error_type(&answer)), (409, "CommitFailedException"));
    let metadata_dir = path(&catalog.load("ns", "a").await["metadata"]["location"]).join("metadata");
    assert_eq!(std::fs::read_dir(metadata_dir).expect("list").count(), 1, "no metadata of what did not happen");
    assert_eq!(transaction(&[change("a", json!([]), "y")]).await, (204, Value::Null));
    assert_eq!(transaction(&[change("none", json!([]), "z")]).await.0, 404);
    for several in [vec![], vec![change("a", json!([]), "z"), change("b", json!([]), "z")]] {
        assert_eq!(transaction(&several).await.0, 400);
    }
    assert_eq!(properties(&catalog.load("ns", "a").await["metadata"]), json!({"y": "1"}));
}

#[tokio::test]
async fn old_metadata_goes_when_the_table_says_so() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    for (t, delete) in [("keep", "false"), ("delete", "true")] {
        let properties = json!({
            "write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": delete});
        catalog.table("ns", t, properties).await;
        for i in 0..6 {
            assert_eq!(catalog.commit(t, json!([]), json!([set_property("n", &i.to_string())])).await.0, 200);
        }
        let loaded = catalog.load("ns", t).await;
        assert_eq!(loaded["metadata"]["properties"]["n"], json!("5"));
        assert_eq!(loaded["metadata"]["metadata-log"].as_array().map(Vec::len), Some(2));
        let current = path(&loaded["metadata-location"]);
        let name = current.file_name().and_then(|n| n.to_str()).expect("a name").to_string();
        assert!(name.starts_with("00006-") && name.ends_with(".metadata.json"), "{name}");
        let files = std::fs::read_dir(current.parent().expect("a directory")).expect("list").count();
        assert_eq!(files, if delete == "true" { 3 } else { 7 });
    }
}
