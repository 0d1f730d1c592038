//! Tables: create, stage, load, drop, register.

use serde_json::{Value, json};

use super::client::{Catalog, assert_ref, create_request, error_type, now_ms, path, set_property, set_ref, snapshot};

#[tokio::test]
async fn a_create_assigns_ids_and_takes_the_version_from_the_properties() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    for (version, name) in [(1, "v1"), (2, "v2"), (3, "v3")] {
        let table = catalog.table("ns", name, json!({"format-version": version.to_string(), "k": "v"})).await;
        assert_eq!(table["format-version"], json!(version));
        assert_eq!(table["properties"], json!({"k": "v"}));
    }
    let mut request = create_request("p", json!({}));
    request["schema"]["fields"][0]["id"] = json!(70);
    request["schema"]["fields"][1]["id"] = json!(30);
    request["partition-spec"] = json!({"spec-id": 5, "fields": [
        {"source-id": 70, "field-id": 1900, "transform": "bucket[2]", "name": "b"}]});
    request["write-order"] = json!({"order-id": 9, "fields": [
        {"source-id": 30, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]});
    request["an-unknown-field"] = json!({"is": "ignored"});
    let (status, body) = catalog.post("/v1/namespaces/ns/tables", request.clone()).await;
    assert_eq!(status, 200, "{body}");
    let metadata = &body["metadata"];
    assert_eq!(metadata["format-version"], json!(2));
    assert_eq!(metadata["last-column-id"], json!(2));
    assert_eq!(metadata["partition-specs"][0]["fields"][0]["source-id"], json!(1));
    assert_eq!(metadata["partition-specs"][0]["fields"][0]["field-id"], json!(1000));
    assert_eq!(metadata["sort-orders"][0]["fields"][0]["source-id"], json!(2));
    let file = std::fs::read_to_string(path(&body["metadata-location"])).expect("a metadata file");
    assert_eq!(&serde_json::from_str::<Value>(&file).expect("JSON"), metadata);

    let (status, body) = catalog.post("/v1/namespaces/ns/tables", request).await;
    assert_eq!((status, error_type(&body)), (409, "AlreadyExistsException"));
    let (status, _) = catalog.post("/v1/namespaces/none/tables", create_request("t", json!({}))).await;
    assert_eq!(status, 404);
    for (change, value) in [
        ("location", json!("s3://bucket/t")),
        ("location", json!("/tmp/../etc")),
        ("schema", json!({"type": "struct", "fields": [{"id": 1, "name": "v", "required": false, "type": "variant"}]})),
        ("properties", json!({"format-version": "9"})),
    ] {
        let mut request = create_request("bad", json!({}));
        request[change] = value;
        let (status, body) = catalog.post("/v1/namespaces/ns/tables", request).await;
        assert_eq!((status, error_type(&body)), (400, "BadRequestException"), "{change}");
    }
    assert_eq!(catalog.get("/v1/namespaces/ns/tables/bad").await.0, 404);
    assert!(!dir.path().join("warehouse/ns/bad").exists(), "a create that failed leaves nothing");
}

/// What a client commits to finish a create transaction on staged metadata.
fn creating_updates(staged: &Value) -> Value {
    json!([
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
        {"action": "set-properties", "updates": {"k": "v"}},
        snapshot(11, None, 1, now_ms()),
        set_ref("main", "branch", 11),
    ])
}

#[tokio::test]
async fn a_staged_table_appears_with_its_commit_and_keeps_its_ids() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    let mut request = create_request("t", json!({}));
    request["stage-create"] = json!(true);
    request["partition-spec"] =
        json!({"fields": [{"source-id": 2, "field-id": 1000, "transform": "identity", "name": "kind"}]});
    let (status, body) = catalog.post("/v1/namespaces/ns/tables", request).await;
    assert_eq!((status, &body["metadata-location"]), (200, &Value::Null));
    let staged = body["metadata"].clone();
    assert_eq!(catalog.get("/v1/namespaces/ns/tables/t").await.0, 404);
    assert_eq!(catalog.get("/v1/namespaces/ns/tables").await.1["identifiers"], json!([]));

    let updates = creating_updates(&staged);
    let (status, body) = catalog.commit("t", json!([]), updates.clone()).await;
    assert_eq!((status, error_type(&body)), (404, "NoSuchTableException"));
    let create = json!([{"type": "assert-create"}]);
    let (status, body) = catalog.commit("t", create.clone(), updates.clone()).await;
    assert_eq!(status, 200, "{body}");
    let metadata = &body["metadata"];
    assert_eq!(metadata["table-uuid"], staged["table-uuid"]);
    assert_eq!(metadata["location"], staged["location"]);
    assert_eq!(metadata["default-spec-id"], json!(0));
    assert_eq!(metadata["partition-specs"], staged["partition-specs"]);
    assert_eq!(metadata["schemas"], staged["schemas"]);
    assert_eq!((&metadata["current-snapshot-id"], &metadata["last-sequence-number"]), (&json!(11), &json!(1)));
    assert_eq!(metadata["refs"]["main"]["snapshot-id"], json!(11));
    assert_eq!(catalog.load("ns", "t").await["metadata"], *metadata);

    let (status, body) = catalog.commit("t", create.clone(), updates).await;
    assert_eq!((status, error_type(&body)), (409, "CommitFailedException"));
    let (status, _) = catalog.commit("u", create, json!([set_property("a", "b")])).await;
    assert_eq!(status, 400, "a create without a schema");
}

#[tokio::test]
async fn a_dropped_table_can_be_registered_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    let old = catalog.load("ns", "t").await;
    let (_, new) = catalog.commit("t", json!([]), json!([set_property("k", "v")])).await;
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/ns/tables/t", None).await.0, 204);
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/ns/tables/t", None).await.0, 404);
    assert!(path(&new["metadata-location"]).exists(), "a drop without purge deletes no file");

    let local = path(&old["metadata-location"]);
    for (i, location) in
        [format!("file://{}", local.display()), format!("file:{}", local.display()), local.display().to_string()]
            .iter()
            .enumerate()
    {
        let request = json!({"name": format!("r{i}"), "metadata-location": location});
        let (status, body) = catalog.post("/v1/namespaces/ns/register", request.clone()).await;
        assert_eq!((status, &body["metadata"]), (200, &old["metadata"]), "{location}");
        assert_eq!(catalog.post("/v1/namespaces/ns/register", request).await.0, 409);
        let (status, body) = catalog.commit(&format!("r{i}"), json!([]), json!([set_property("n", "1")])).await;
        assert_eq!((status, &body["metadata"]["properties"]), (200, &json!({"n": "1"})));
    }
    // Two tables share these files now.
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/ns/tables/r1?purgeRequested=true", None).await.0, 204);
    assert!(path(&new["metadata-location"]).exists());
    let fresh = catalog.table("ns", "t", json!({})).await;
    assert_ne!(fresh["location"], old["metadata"]["location"]);
    for location in ["/nowhere/m.metadata.json", "s3://b/m.metadata.json"] {
        let request = json!({"name": "x", "metadata-location": location});
        assert_eq!(catalog.post("/v1/namespaces/ns/register", request).await.0, 400, "{location}");
    }
}

#[tokio::test]
async fn a_table_with_unknown_types_is_served_as_it_is_and_changed_where_no_type_matters() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({"format-version": "3"})).await;
    let loaded = catalog.load("ns", "t").await;
    let mut metadata = loaded["metadata"].clone();
    metadata["schemas"][0]["fields"][1]["type"] = json!("variant");
    let file = dir.path().join("00001-x.metadata.json");
    std::fs::write(&file, metadata.to_string()).expect("write");
    let request = json!({"name": "v", "metadata-location": file});
    assert_eq!(catalog.post("/v1/namespaces/ns/register", request).await.0, 200);
    assert_eq!(catalog.load("ns", "v").await["metadata"], metadata);
    let schema = json!({"action": "set-current-schema", "schema-id": 0});
    let (status, body) = catalog.commit("v", json!([]), json!([schema])).await;
    assert_eq!((status, error_type(&body)), (400, "BadRequestException"));
    let (status, body) = catalog.commit("v", json!([assert_ref("main", Some(7))]), json!([])).await;
    assert_eq!((status, error_type(&body)), (409, "CommitFailedException"));
    let (status, body) = catalog.commit("v", json!([]), json!([set_property("a", "b")])).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["metadata"]["properties"]["a"], "b");
    assert_eq!(body["metadata"]["schemas"], metadata["schemas"]);
    assert_eq!(catalog.load("ns", "v").await["metadata"], body["metadata"]);
}

#[tokio::test]
async fn a_table_answers_whether_it_is_there_and_takes_reports() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    assert_eq!(catalog.call("HEAD", "/v1/namespaces/ns/tables/t", None).await.0, 204);
    assert_eq!(catalog.call("HEAD", "/v1/namespaces/ns/tables/u", None).await.0, 404);
    assert_eq!(catalog.post("/v1/namespaces/ns/tables/t/metrics", json!({"report-type": "x"})).await.0, 204);
}
