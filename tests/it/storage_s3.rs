//! The S3 store against a server that behaves as told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use iceberg::TableCreation;
use iceberg::spec::{NestedField, PrimitiveType, Schema, TableMetadataBuilder, Type};
use icewright::error::{Error, ErrorKind, Result};
use icewright::http_client::{NoObserver, RequestObserver};
use icewright::permit::WritePermit;
use icewright::storage::credentials::CredentialSource;
use icewright::storage::delete_files::{Proof, delete_files};
use icewright::storage::s3::CONDITIONAL_WRITES;
use icewright::storage::{self, StoreRef};
use icewright::table::ListedFile;
use icewright::table::{LoadedTable, StorageCredential, TableCredentials};

use crate::rest_observed::Seen;
use crate::support::http_server::{HttpServer, Received, Reply};

fn properties(server: &HttpServer, more: &[(&str, &str)]) -> HashMap<String, String> {
    let endpoint = server.uri();
    let fixed = [
        ("s3.endpoint", endpoint.as_str()),
        ("s3.region", "us-east-1"),
        ("s3.access-key-id", "own"),
        ("s3.secret-access-key", "secret"),
    ];
    fixed.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn store(server: &HttpServer) -> StoreRef {
    storage::open(&properties(server, &[]))
}

fn body(text: &str) -> Reply {
    Reply::Answer(200, vec![], text.as_bytes().to_vec())
}

fn s3_error(status: u16, code: &str) -> Reply {
    let xml = format!("<Error><Code>{code}</Code><Message>because</Message></Error>");
    Reply::Answer(status, vec![], xml.into_bytes())
}

/// The access key that signed a request.
fn key_of(request: &Received) -> String {
    let header = request.header("authorization").unwrap_or_default();
    header.split("Credential=").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or("none").to_owned()
}

#[tokio::test]
async fn keys_are_encoded_once_and_not_otherwise_touched() {
    let server = HttpServer::start(|_: &Received| body("abc"));
    let store = store(&server);
    for path in ["s3a://bkt/t/a b/50%/k%3Av/x#y?z+\u{e9}/e\u{301}", "s3://bkt/t//d /f ", "s3n://bkt/t/q'\"&=;,:@$!*()~"]
    {
        assert_eq!(store.read(path).await.unwrap(), "abc");
    }
    let expected = [
        "GET /bkt/t/a%20b/50%25/k%253Av/x%23y%3Fz%2B%C3%A9/e%CC%81",
        "GET /bkt/t//d%20/f%20",
        "GET /bkt/t/q'%22%26%3D%3B%2C%3A%40%24!*()~",
    ];
    assert_eq!(server.targets(""), expected);
    assert!(server.received().iter().all(|r| key_of(r) == "own"));
    for bad in ["s3://bkt//t/f", "s3://bkt/t/../f", "gs://bkt/f", "hdfs://nn:8020/f"] {
        assert!(store.read(bad).await.is_err(), "{bad}");
    }
    let error = store.read("abfss://c@acct/f").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("\"abfss\"") && error.to_string().contains("s3a"), "{error}");
    assert_eq!(server.received().len(), 3, "nothing was asked about the bad ones");
}

#[tokio::test]
async fn ranges_that_come_short_are_errors() {
    let server = HttpServer::start(|_: &Received| Reply::Answer(206, vec![], b"abc".to_vec()));
    let store = store(&server);
    assert_eq!(store.read_range("s3://bkt/f", 4..7).await.unwrap(), "abc");
    assert_eq!(server.received()[0].header("range"), Some("bytes=4-6"));
    assert!(store.read_range("s3://bkt/f", 4..9).await.is_err());
    assert!(store.read_range("s3://bkt/f", 4..6).await.is_err(), "too much is no answer either");
    assert_eq!(store.read_range("s3://bkt/f", 4..4).await.unwrap(), "");
}

#[tokio::test]
async fn writes_do_not_overwrite() {
    let taken = HttpServer::start(|request: &Received| match request.header("if-none-match") {
        Some("*") => s3_error(412, "PreconditionFailed"),
        _ => Reply::status(200).with("etag", "\"e\""),
    });
    let error = store(&taken).write("s3://bkt/f", Bytes::from_static(b"x")).await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    let unconditional = storage::open(&properties(&taken, &[(CONDITIONAL_WRITES, "false")]));
    unconditional.write("s3://bkt/f", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(taken.targets(""), ["PUT /bkt/f", "PUT /bkt/f"]);
}

/// Answers a multipart upload; `part` decides about each part.
fn multipart(mut part: impl FnMut(&Received) -> Reply + Send + 'static) -> HttpServer {
    HttpServer::start(move |request: &Received| {
        let target = request.target.as_str();
        match request.method.as_str() {
            "POST" if target.ends_with("?uploads") => {
                body("<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
            }
            "PUT" => part(request),
            "POST" => body("<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>"),
            _ => Reply::status(204),
        }
    })
}

async fn write_parts(store: &StoreRef, size: usize) -> Result<u64> {
    let mut writer = store.writer("s3://bkt/f").await?;
    for _ in 0..size / 1_000_000 {
        if let Err(e) = writer.write(Bytes::from(vec![1; 1_000_000])).await {
            writer.abort().await?;
            return Err(e);
        }
    }
    match writer.close().await {
        Err(e) => writer.abort().await.and(Err(e)),
        closed => closed,
    }
}

#[tokio::test]
async fn big_files_go_in_parts_and_failures_free_them() {
    let server = multipart(|_| Reply::status(200).with("etag", "\"p\""));
    assert_eq!(write_parts(&store(&server), 20_000_000).await.unwrap(), 20_000_000);
    let mut sizes: Vec<_> = server.received().iter().filter(|r| r.method == "PUT").map(|r| r.body.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [20_000_000 - 2 * (8 << 20), 8 << 20, 8 << 20]);
    assert_eq!(server.received().last().unwrap().header("if-none-match"), Some("*"));

    let server = multipart(|_| s3_error(403, "AccessDenied"));
    assert!(write_parts(&store(&server), 30_000_000).await.is_err());
    let deleted = server.targets("uploadId=u1").into_iter().filter(|t| t.starts_with("DELETE")).count();
    assert_eq!(deleted, 1, "the upload was given up");
}

#[tokio::test]
async fn listings_give_files_with_size_and_time_and_no_directories() {
    let page = |next: &str, keys: &[&str]| {
        let contents: String = keys
            .iter()
            .map(|key| {
                format!("<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><Size>7</Size></Contents>")
            })
            .collect();
        let more = if next.is_empty() { "false" } else { "true" };
        let token = if next.is_empty() {
            String::new()
        } else {
            format!("<NextContinuationToken>{next}</NextContinuationToken>")
        };
        body(&format!("<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{contents}</ListBucketResult>"))
    };
    let server = HttpServer::start(move |request: &Received| {
        if request.target.contains("continuation-token=n2") {
            page("", &["t/x&amp;y", "t//z"])
        } else {
            page("n2", &["t/", "t/data/", "t/data/a b"])
        }
    });
    for prefix in ["s3a://bkt/t", "s3a://bkt/t/"] {
        let files: Vec<_> = store(&server).list(prefix).try_collect().await.unwrap();
        let file = |name: &str| ListedFile {
            path: format!("s3a://bkt/t/{name}"),
            size: 7,
            last_modified_ms: Some(1_767_323_045_678),
        };
        assert_eq!(files, [file("data/a b"), file("x&y"), file("/z")]);
    }
    assert!(server.targets("").iter().all(|t| t.contains("prefix=t/")), "{:?}", server.targets(""));
    let broken = HttpServer::start(|_: &Received| s3_error(404, "NoSuchBucket"));
    let error = store(&broken).list("s3://bkt/t").try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a bucket that is not there is not an empty one");
}

#[tokio::test]
async fn every_deleted_file_has_its_own_result() {
    let throttled = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&throttled);
    let server = HttpServer::start(move |request: &Received| match request.method.as_str() {
        "POST" => body(
            "<DeleteResult><Deleted><Key>a</Key></Deleted>\
             <Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>\
             <Error><Key>c</Key><Code>SlowDown</Code><Message>later</Message></Error></DeleteResult>",
        ),
        _ if request.target == "/bkt/b" => s3_error(403, "AccessDenied"),
        _ if request.target == "/bkt/c" && counter.fetch_add(1, Ordering::SeqCst) < 2 => s3_error(503, "SlowDown"),
        _ => Reply::status(204),
    });
    let paths = ["s3://bkt/a", "s3a://bkt/b", "s3://bkt/c", "s3://bkt//odd"].map(str::to_owned);
    let report = delete_files(store(&server).as_ref(), &paths, Proof::Orphan).await;
    assert_eq!(report.deleted, ["s3://bkt/a", "s3://bkt/c"]);
    let failed: Vec<_> = report.failed.iter().map(|(path, e)| (path.as_str(), e.kind())).collect();
    assert_eq!(failed, [("s3a://bkt/b", ErrorKind::Unavailable), ("s3://bkt//odd", ErrorKind::Unsupported)]);
    assert_eq!(throttled.load(Ordering::SeqCst), 3, "throttled deletes are tried again");
}

#[tokio::test]
async fn the_stores_clock_is_told_by_the_date_of_any_answer() {
    let date = "Thu, 01 Jan 2026 00:00:00 GMT";
    for status in [200, 404, 400] {
        let server = HttpServer::start(move |_: &Received| Reply::status(status).with("date", date));
        let told = store(&server).time_ms("s3://bkt/t/metadata/v1.metadata.json").await.unwrap().expect("told");
        assert!((1_767_225_600_000..1_767_225_660_000).contains(&told), "{status}: {told}");
    }
    let server = HttpServer::start(|_: &Received| Reply::status(404));
    assert_eq!(store(&server).time_ms("s3://bkt/t/f").await.unwrap(), None, "a store that tells no date");
}

#[tokio::test]
async fn a_good_batch_is_one_request() {
    let server = HttpServer::start(|_: &Received| body("<DeleteResult></DeleteResult>"));
    let paths: Vec<String> = (0..250).map(|i| format!("s3://bkt/t/{i} &<%")).collect();
    assert!(store(&server).delete_batch(&paths).await.iter().all(Result::is_ok));
    assert_eq!(server.targets(""), ["POST /bkt/?delete"]);
    assert!(server.received()[0].body_text().contains("<Key>t/17 &amp;&lt;%</Key>"));
}

/// A table's store whose permit holds from now on.
fn store_with(server: &HttpServer, permit: WritePermit) -> StoreRef {
    permit.grant(tokio::time::Instant::now() + std::time::Duration::from_secs(600));
    let lender = Arc::new(Lender { calls: AtomicUsize::new(0), credentials: Mutex::default() });
    let base = HashMap::from([("s3.region".to_owned(), "us-east-1".to_owned())]);
    storage::for_table(&base, &table(server), lender, Arc::new(NoObserver), permit).unwrap()
}

#[tokio::test]
async fn a_batch_that_is_taken_apart_ends_with_the_permit() {
    let permit = WritePermit::withheld();
    let revoked = permit.clone();
    let server = HttpServer::start(move |request: &Received| {
        if request.method == "DELETE" {
            revoked.revoke();
        }
        s3_error(503, "SlowDown")
    });
    let store = store_with(&server, permit);
    let report = delete_files(store.as_ref(), &["s3://bkt/t/a".to_owned()], Proof::Orphan).await;
    let kinds: Vec<_> = report.failed.iter().map(|(_, error)| error.kind()).collect();
    assert_eq!((report.deleted.len(), kinds), (0, vec![ErrorKind::Cancelled]));
    let singles = server.received().iter().filter(|request| request.method == "DELETE").count();
    assert_eq!(singles, 1, "the batch was taken apart, and without the permit nothing is sent again");
}

#[tokio::test]
async fn a_delete_request_is_not_repeated_without_the_permit() {
    let permit = WritePermit::withheld();
    let revoked = permit.clone();
    let server = HttpServer::start(move |_: &Received| {
        revoked.revoke();
        s3_error(503, "SlowDown")
    });
    let store = store_with(&server, permit);
    let paths = ["s3://bkt/t/a", "s3://bkt/t/b"].map(str::to_owned);
    let report = delete_files(store.as_ref(), &paths, Proof::Orphan).await;
    let kinds: Vec<_> = report.failed.iter().map(|(_, error)| error.kind()).collect();
    assert_eq!((report.deleted.len(), kinds), (0, vec![ErrorKind::Cancelled; 2]));
    assert_eq!(server.targets(""), ["POST /bkt/?delete"], "one request, sent while the permit held");
}

#[tokio::test]
async fn results_of_deletes_stay_with_their_paths_over_roots_and_repeats() {
    let posts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&posts);
    let server =
        HttpServer::start(move |request: &Received| match (request.method.as_str(), request.target.as_str()) {
            // The first batch is applied and its answer lost: sent again, all of it is gone already.
            ("POST", "/bkt/?delete") if counter.fetch_add(1, Ordering::SeqCst) == 0 => Reply::status(500),
            ("POST", "/bkt/?delete") => body("<DeleteResult><Deleted><Key>t/a</Key></Deleted></DeleteResult>"),
            ("POST", _) => s3_error(400, "MalformedXML"),
            (_, "/other/t/b") => s3_error(404, "NoSuchKey"),
            (_, "/other/t/d") => s3_error(403, "AccessDenied"),
            _ => Reply::status(204),
        });
    let paths = ["s3://bkt/t/a", "s3://other/t/b", "gs://bkt/t/x", "s3a://bkt/t/c", "s3://other/t/d", "s3://other/t/e"];
    let paths = paths.map(str::to_owned);
    let report = delete_files(store(&server).as_ref(), &paths, Proof::Orphan).await;
    assert_eq!(report.deleted, ["s3://bkt/t/a", "s3://other/t/b", "s3a://bkt/t/c", "s3://other/t/e"]);
    let failed: Vec<_> = report.failed.iter().map(|(path, e)| (path.as_str(), e.kind())).collect();
    assert_eq!(failed, [("gs://bkt/t/x", ErrorKind::Unsupported), ("s3://other/t/d", ErrorKind::Unavailable)]);
    assert_eq!(posts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn keys_that_look_like_others_are_deleted_verbatim() {
    let server = HttpServer::start(|request: &Received| match request.method.as_str() {
        "POST" => s3_error(400, "MalformedXML"),
        _ => Reply::status(204),
    });
    let paths = ["s3://bkt/t//a", "s3://bkt/t/%2F", "s3://bkt/t/./b", "s3://bkt/t/x/../y"].map(str::to_owned);
    let report = delete_files(store(&server).as_ref(), &paths, Proof::Orphan).await;
    assert_eq!((report.deleted.as_slice(), report.failed.len()), (&paths[..2], 2), "segments that clients resolve");
    let mut sent = server.targets("");
    sent.retain(|request| request.starts_with("DELETE"));
    assert_eq!(sent, ["DELETE /bkt/t//a", "DELETE /bkt/t/%252F"]);
}

struct Lender {
    calls: AtomicUsize,
    credentials: Mutex<Vec<StorageCredential>>,
}

#[async_trait]
impl CredentialSource for Lender {
    async fn fetch(&self) -> Result<TableCredentials> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let credential = self.credentials.lock().unwrap().pop().ok_or_else(|| Error::unavailable("no more"))?;
        Ok(TableCredentials { config: HashMap::new(), storage_credentials: vec![credential] })
    }
}

fn credential(key: &str) -> StorageCredential {
    let pairs = [("s3.access-key-id", key), ("s3.secret-access-key", "s"), ("s3.session-token", key)];
    StorageCredential { prefix: "s3://bkt/t".into(), config: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into() }
}

fn table(server: &HttpServer) -> LoadedTable {
    let id = NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long));
    let schema = Schema::builder().with_fields([id.into()]).build().unwrap();
    let creation = TableCreation::builder().name("t".into()).location("s3://bkt/t".into()).schema(schema).build();
    let metadata = TableMetadataBuilder::from_table_creation(creation).unwrap().build().unwrap().metadata;
    let json = serde_json::to_value(metadata).unwrap();
    let mut table = LoadedTable::from_metadata_json("s3://bkt/t/metadata/1.json".into(), &json).unwrap();
    let config = HashMap::from([("s3.endpoint".to_owned(), server.uri())]);
    table.vended = TableCredentials { config, storage_credentials: vec![credential("key1")] };
    table
}

fn lent_store(server: &HttpServer, later: &[&str]) -> (Arc<Lender>, StoreRef) {
    observed_store(server, later, Arc::new(NoObserver))
}

fn observed_store(server: &HttpServer, later: &[&str], observer: Arc<dyn RequestObserver>) -> (Arc<Lender>, StoreRef) {
    let credentials = Mutex::new(later.iter().rev().map(|key| credential(key)).collect());
    let lender = Arc::new(Lender { calls: AtomicUsize::new(0), credentials });
    let base = HashMap::from([("s3.region".to_owned(), "us-east-1".to_owned())]);
    let store = storage::for_table(&base, &table(server), lender.clone(), observer, WritePermit::always()).unwrap();
    (lender, store)
}

#[tokio::test]
async fn expired_keys_are_renewed_once_and_the_request_resumes() {
    let server = HttpServer::start(|request: &Received| match key_of(request).as_str() {
        "key2" => body("abc"),
        _ => s3_error(400, "ExpiredToken"),
    });
    let (lender, store) = lent_store(&server, &["key2", "key3"]);
    let reads = futures::future::join_all((0..4).map(|_| store.read("s3a://bkt/t/f"))).await;
    assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    assert_eq!(lender.calls.load(Ordering::SeqCst), 1, "once for all of them");
    assert_eq!(server.received().last().unwrap().header("x-amz-security-token"), Some("key2"));
}

#[tokio::test]
async fn a_denied_request_renews_once_and_then_fails() {
    let server = HttpServer::start(|_: &Received| s3_error(403, "AccessDenied"));
    let (lender, store) = lent_store(&server, &["key2", "key3"]);
    let error = store.read("s3://bkt/t/f").await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied") && error.to_string().contains("read s3://bkt/t/f"), "{error}");
    assert!(store.read("s3://bkt/t/f").await.is_err());
    let keys: Vec<_> = server.received().iter().map(key_of).collect();
    assert_eq!(keys, ["key1", "key2", "key2"], "no storm of renewals");
    assert_eq!(lender.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upload_outlives_its_keys() {
    let server = multipart({
        let mut parts = 0;
        move |request| {
            parts += 1;
            let expired = parts > 1 && key_of(request) == "key1";
            if expired { s3_error(400, "ExpiredToken") } else { Reply::status(200).with("etag", "\"p\"") }
        }
    });
    let (lender, store) = lent_store(&server, &["key2"]);
    let mut writer = store.writer("s3://bkt/t/f").await.unwrap();
    for _ in 0..30 {
        writer.write(Bytes::from(vec![1; 1_000_000])).await.unwrap();
    }
    assert_eq!(writer.close().await.unwrap(), 30_000_000);
    assert_eq!(lender.calls.load(Ordering::SeqCst), 1);
    let done = server.received();
    assert_eq!(key_of(done.last().unwrap()), "key2");
    let completed = done.last().unwrap().body_text();
    assert_eq!(completed.matches("<PartNumber>").count(), 4, "{completed}");
}

#[tokio::test]
async fn requests_that_are_sent_again_are_observed() {
    let mut asked = HashMap::new();
    let server = HttpServer::start(move |request| {
        let times: &mut usize = asked.entry(request.method.clone()).or_default();
        *times += 1;
        if *times == 1 { s3_error(503, "SlowDown") } else { body("abc") }
    });
    let seen = Arc::new(Seen::default());
    let (_, store) = observed_store(&server, &[], seen.clone());
    assert_eq!(store.read("s3://bkt/t/f").await.unwrap().as_ref(), b"abc");
    assert_eq!(seen.take(), ["read again", "read ok"]);
    assert_eq!(store.stat("s3://bkt/t/f").await.unwrap().map(|f| f.size), Some(3));
    assert_eq!(seen.take(), ["stat again", "stat ok"]);
}
