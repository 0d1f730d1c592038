//! What a crash leaves behind, and what the next start makes of it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use icewright::error::ErrorKind;
use icewright::sandbox::catalog::CatalogServer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::client::{Catalog, call, create_request, path, set_property};

#[tokio::test]
async fn a_directory_has_one_catalog_at_a_time() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    let second = CatalogServer::open(dir.path()).map(|_| ()).expect_err("the directory is in use");
    assert_eq!(second.kind(), ErrorKind::Config);
    catalog.stop().await;
    Catalog::start(dir.path()).await.stop().await;
    let odd = CatalogServer::open(&dir.path().join("50%")).map(|_| ()).expect_err("no name for a URI");
    assert_eq!(odd.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn half_written_files_mean_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    catalog.commit("t", json!([]), json!([set_property("k", "1")])).await;
    let before = catalog.load("ns", "t").await;
    catalog.stop().await;

    let metadata_dir = path(&before["metadata"]["location"]).join("metadata");
    std::fs::write(metadata_dir.join("00002-half.metadata.json"), "{\"format-ver").expect("write");
    let tree = dir.path().join("catalog");
    std::fs::write(tree.join("ns/.tmp-1"), "{\"metadata-loc").expect("write");
    std::fs::write(tree.join(".tmp-2"), "[{\"table\":").expect("write");
    std::fs::create_dir(tree.join("started")).expect("a namespace whose file was not written yet");

    let catalog = Catalog::start(dir.path()).await;
    assert_eq!(catalog.load("ns", "t").await, before);
    assert_eq!(catalog.get("/v1/namespaces").await.1["namespaces"], json!([["ns"]]));
    assert!(!tree.join("ns/.tmp-1").exists() && !tree.join(".tmp-2").exists());
    catalog.namespace(&["started"]).await;
    let (status, body) = catalog.commit("t", json!([]), json!([set_property("k", "2")])).await;
    assert_eq!((status, &body["metadata"]["properties"]["k"]), (200, &json!("2")));
}

const CHILD_DIR: &str = "ICEWRIGHT_TEST_CATALOG_DIR";

/// Not a test by itself: the process that [`acknowledged_commits_survive_kill_9`] kills.
#[tokio::test]
#[ignore = "started by another test, in a process of its own"]
async fn serve_until_killed() {
    let dir = std::env::var(CHILD_DIR).expect("the directory to serve");
    let server = CatalogServer::open(Path::new(&dir)).expect("open catalog");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    println!("\nserving http://{}", listener.local_addr().expect("address"));
    server.serve(listener, CancellationToken::new()).await.expect("serve");
}

fn spawn_catalog(dir: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "embedded_catalog::durability::serve_until_killed", "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start catalog process");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let uri = lines
        .find_map(|line| line.expect("a line").strip_prefix("serving ").map(str::to_string))
        .expect("the catalog says where it listens");
    (child, uri)
}

/// Counts up a property of one table, commit by commit, until the catalog is gone; returns the last acknowledged count.
async fn count_up(uri: String, table: usize, start: u64, total: std::sync::Arc<std::sync::atomic::AtomicU64>) -> u64 {
    let http = reqwest::Client::new();
    let mut acknowledged = start;
    loop {
        let next = acknowledged + 1;
        let body = json!({"requirements": [], "updates": [set_property("n", &next.to_string())]});
        match call(&http, &uri, "POST", &format!("/v1/namespaces/ns/tables/t{table}"), Some(&body)).await {
            Ok((200, _)) => acknowledged = next,
            Ok((status, body)) => panic!("status {status}: {body}"),
            Err(_) => return acknowledged,
        }
        total.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_commits_survive_kill_9() {
    const TABLES: usize = 3;
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    for t in 0..TABLES {
        let (status, _) = catalog.post("/v1/namespaces/ns/tables", create_request(&format!("t{t}"), json!({}))).await;
        assert_eq!(status, 200);
    }
    catalog.stop().await;
    let mut counts = [0u64; TABLES];
    for round in 0..4u64 {
        let (mut child, uri) = spawn_catalog(dir.path());
        let total = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let writers: Vec<_> =
            (0..TABLES).map(|t| tokio::spawn(count_up(uri.clone(), t, counts[t], total.clone()))).collect();
        // The kill comes after some commits, a different number in each round, whatever the machine's speed.
        while total.load(std::sync::atomic::Ordering::SeqCst) < 7 + 5 * round {
            tokio::task::yield_now().await;
        }
        child.kill().expect("kill -9");
        child.wait().expect("wait");
        let catalog = Catalog::start(dir.path()).await;
        for (t, writer) in writers.into_iter().enumerate() {
            let acknowledged = writer.await.expect("writer");
            let properties = catalog.load("ns", &format!("t{t}")).await["metadata"]["properties"].clone();
            let found: u64 = properties["n"].as_str().map_or(0, |n| n.parse().expect("a count"));
            // The last request may have been applied without its answer arriving.
            assert!(
                (acknowledged..=acknowledged + 1).contains(&found),
                "t{t}: {acknowledged} or one more, not {found}"
            );
            counts[t] = found;
        }
        catalog.stop().await;
    }
}

#[tokio::test]
async fn metadata_that_was_cut_off_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let catalog = Catalog::start(dir.path()).await;
    catalog.namespace(&["ns"]).await;
    catalog.table("ns", "t", json!({})).await;
    let location = catalog.load("ns", "t").await["metadata-location"].clone();
    let whole = std::fs::read(path(&location)).expect("the metadata");
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(path(&location), &whole[..length]).expect("cut it off");
        let (status, body) = catalog.get("/v1/namespaces/ns/tables/t").await;
        let message = body["error"]["message"].as_str().expect("a message");
        assert_eq!((status, &body["error"]["type"]), (500, &json!("InternalServerError")), "{length} bytes");
        assert!(message.contains(location.as_str().expect("text")), "{message}");
        let (status, body) = catalog.commit("t", json!([]), json!([set_property("k", "1")])).await;
        assert_eq!((status, &body["error"]["code"]), (500, &json!(500)), "{length} bytes");
    }
    std::fs::write(path(&location), &whole).expect("make it whole");
    assert_eq!(catalog.get("/v1/namespaces/ns/tables/t").await.0, 200);
}
