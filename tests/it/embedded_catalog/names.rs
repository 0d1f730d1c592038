//! Namespaces, names and listings.

use std::collections::BTreeSet;

use serde_json::json;

use super::client::{Catalog, create_request, error_type, path};

#[tokio::test]
async fn namespaces_live_and_die_as_specified() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    let request = json!({"namespace": ["a"], "properties": {"k": "1", "gone": "x"}});
    assert_eq!(catalog.post("/v1/namespaces", request.clone()).await, (200, request.clone()));
    let (status, body) = catalog.post("/v1/namespaces", request).await;
    assert_eq!((status, error_type(&body), &body["error"]["code"]), (409, "AlreadyExistsException", &json!(409)));
    let (status, body) = catalog.post("/v1/namespaces", json!({"namespace": ["no", "child"]})).await;
    assert_eq!((status, error_type(&body)), (404, "NoSuchNamespaceException"));

    catalog.namespace(&["a", "b"]).await;
    assert_eq!(catalog.get("/v1/namespaces").await.1["namespaces"], json!([["a"]]));
    assert_eq!(catalog.get("/v1/namespaces?parent=a").await.1["namespaces"], json!([["a", "b"]]));
    assert_eq!(catalog.get("/v1/namespaces?parent=a%1Fb").await.1["namespaces"], json!([]));
    assert_eq!(catalog.get("/v1/namespaces?parent=none").await.0, 404);
    assert_eq!(catalog.call("HEAD", "/v1/namespaces/a%1Fb", None).await.0, 204);
    assert_eq!(catalog.call("HEAD", "/v1/namespaces/a%1Fc", None).await.0, 404);

    assert_eq!(catalog.get("/v1/namespaces/a").await.1["properties"], json!({"k": "1", "gone": "x"}));

    let (status, body) = catalog.call("DELETE", "/v1/namespaces/a", None).await;
    assert_eq!((status, error_type(&body)), (409, "NamespaceNotEmptyException"));
    catalog.table("a%1Fb", "t", json!({})).await;
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/a%1Fb", None).await.0, 409);
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/a%1Fb/tables/t", None).await.0, 204);
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/a%1Fb", None).await.0, 204);
    assert_eq!(catalog.call("DELETE", "/v1/namespaces/a", None).await.0, 204);
    assert_eq!(catalog.get("/v1/namespaces/a").await.0, 404);
}

#[tokio::test]
async fn names_never_leave_the_warehouse_and_survive_a_restart() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    let names = ["a.b", "..", ".", "a/b", "ü x%2F", "t.table.json", "metadata"];
    let mut locations = BTreeSet::new();
    for name in names {
        catalog.namespace(&[name]).await;
        catalog.namespace(&[name, name]).await;
        let encoded: String = name.bytes().map(|b| format!("%{b:02X}")).collect();
        // URL libraries take %2E%2E for a step upwards, so the dots go without a parent.
        let namespace = if name.starts_with('.') { "a.b".to_string() } else { format!("{encoded}%1F{encoded}") };
        let table = catalog.table(&namespace, name, json!({})).await;
        let location = path(&table["location"]);
        assert!(location.starts_with(dir.path().canonicalize().expect("path").join("warehouse")), "{location:?}");
        assert_eq!(location, location.canonicalize().expect("a directory"));
        assert!(locations.insert(location));
    }
    catalog.stop().await;
    let catalog = Catalog::start(dir.path()).await;
    let mut sorted: Vec<Vec<&str>> = names.iter().map(|n| vec![*n]).collect();
    sorted.sort();
    assert_eq!(catalog.get("/v1/namespaces").await.1["namespaces"], json!(sorted));
    for name in ["a%2Fb", "a.b", "%C3%BC%20x%252F", "t.table.json", "metadata"] {
        let table = catalog.load(&format!("{name}%1F{name}"), name).await;
        assert!(locations.remove(&path(&table["metadata"]["location"])), "{name}");
    }
    for bad in ["/v1/namespaces/a%1F/tables", "/v1/namespaces/%1F"] {
        assert_eq!(catalog.get(bad).await.0, 400, "{bad}");
    }
    assert_eq!(catalog.post("/v1/namespaces", json!({"namespace": []})).await.0, 400);
    let long = "x".repeat(201);
    assert_eq!(catalog.post("/v1/namespaces/a.b/tables", create_request(&long, json!({}))).await.0, 400);
}

#[tokio::test]
async fn unknown_routes_and_methods_use_the_error_model() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    let (status, body) = catalog.get("/v1/namespaces/ns/views").await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!(404)));
    let (status, body) = catalog.call("PUT", "/v1/namespaces", Some(&json!({}))).await;
    assert_eq!((status, error_type(&body)), (405, "UnsupportedOperationException"));
    let (status, body) = catalog.post("/v1/namespaces", json!({"namespace": "a"})).await;
    assert_eq!((status, error_type(&body)), (400, "BadRequestException"));
    let (status, config) = catalog.get("/v1/config?warehouse=w").await;
    assert_eq!((status, &config["defaults"], &config["overrides"]), (200, &json!({}), &json!({})));
    let endpoints = config["endpoints"].as_array().expect("endpoints");
    assert!(endpoints.contains(&json!("POST /v1/{prefix}/namespaces/{namespace}/tables/{table}")));
    assert!(!endpoints.iter().any(|e| e.as_str().is_some_and(|e| e.contains("view"))));
}
