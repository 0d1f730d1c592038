//! What an observer learns of the REST client's requests, what leave it asks for, and what it learns of the catalog's clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use icewright::catalog::rest::{Auth, MAX_RETRIES, RestCatalog};
use icewright::catalog::{Catalog, CommitOutcome};
use icewright::error::{Error, ErrorKind};
use icewright::http_client::RequestObserver;

use crate::rest_client::{catalog_server, commit, config_for, connect, empty_config, ident, oauth, table_answer};
use crate::support::http_server::{HttpServer, Reply};

#[derive(Default)]
pub(crate) struct Seen(Mutex<Vec<String>>);

impl Seen {
    /// Everything since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl RequestObserver for Seen {
    fn observe(&self, operation: &'static str, outcome: &'static str, seconds: f64) {
        assert!(seconds >= 0.0);
        self.0.lock().unwrap().push(format!("{operation} {outcome}"));
    }

    fn retried(&self, operation: &'static str) {
        self.0.lock().unwrap().push(format!("{operation} again"));
    }
}

fn observed(server: &HttpServer, auth: Auth, retries: &str) -> (RestCatalog, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let catalog = RestCatalog::new(config_for(&server.uri(), auth, &[(MAX_RETRIES, retries)])).unwrap();
    (catalog.with_observer(seen.clone()), seen)
}

#[tokio::test]
async fn requests_are_observed() {
    let replies = vec![Reply::json(200, table_answer()), Reply::status(409), Reply::status(500)];
    let server = catalog_server(empty_config(), None, replies);
    let (catalog, seen) = observed(&server, Auth::None, "0");
    catalog.load_table(&ident()).await.unwrap();
    let _ = (commit(&catalog).await, commit(&catalog).await, catalog.load_table(&ident()).await);
    let expected =
        ["config ok", "load_table ok", "commit_table conflict", "commit_table unknown", "load_table unavailable"];
    assert_eq!(seen.take(), expected);
}

#[tokio::test]
async fn so_are_those_for_tokens_and_those_sent_again() {
    let applied = Reply::json(200, table_answer());
    let replies = vec![Reply::status(503), Reply::status(401), applied.clone(), Reply::status(429), applied];
    let server = catalog_server(empty_config(), None, replies);
    let (catalog, seen) = observed(&server, oauth(), "3");
    catalog.load_table(&ident()).await.unwrap();
    let expected = ["token ok", "config ok", "load_table again", "token ok", "load_table again", "load_table ok"];
    assert_eq!(seen.take(), expected);
    assert_eq!(commit(&catalog).await.0, "committed");
    assert_eq!(seen.take(), ["commit_table again", "commit_table ok"]);
}

#[tokio::test]
async fn a_token_that_nobody_gives_is_asked_for_again_and_then_told_once() {
    let mut asked = 0;
    let server = HttpServer::start(move |_| {
        asked += 1;
        Reply::status(if asked < 3 { 503 } else { 400 })
    });
    let (catalog, seen) = observed(&server, oauth(), "0");
    assert!(catalog.load_table(&ident()).await.is_err());
    assert_eq!(seen.take(), ["token again", "token again", "token unavailable", "config unavailable"]);
}

#[tokio::test]
async fn leave_is_asked_before_each_sending_and_a_refused_one_may_have_been_applied() {
    for (sent, expected) in [(0, "not sent"), (1, "refused"), (2, "refused")] {
        let busy = Reply::status(429).with("retry-after", "0");
        let server = catalog_server(empty_config(), None, vec![busy]);
        let catalog = connect(&server, oauth()).await;
        let asked = AtomicUsize::new(0);
        let may_send = || match asked.fetch_add(1, Ordering::SeqCst) {
            n if n < sent => Ok(()),
            _ => Err(Error::new(ErrorKind::Cancelled, "too late")),
        };
        let outcome = catalog.commit_table(&ident(), vec![], vec![], &may_send).await;
        let outcome = match outcome {
            CommitOutcome::NotSent(e) if e.kind() == ErrorKind::Cancelled => "not sent",
            CommitOutcome::Refused(e) if e.kind() == ErrorKind::Cancelled => "refused",
            other => panic!("{other:?}"),
        };
        assert_eq!((outcome, server.targets("/tables/t").len()), (expected, sent));
    }
}

#[tokio::test]
async fn the_catalogs_clock_is_told_by_the_dates_of_its_answers() {
    let server = HttpServer::start(|_| Reply::json(200, empty_config()).with("date", "Thu, 01 Jan 2026 00:00:00 GMT"));
    let catalog = connect(&server, Auth::None).await;
    let told = catalog.time_ms().expect("told");
    assert!((1_767_225_600_000..1_767_225_660_000).contains(&told), "{told}");
    let silent = HttpServer::start(|_| Reply::json(200, empty_config()));
    assert_eq!(connect(&silent, Auth::None).await.time_ms(), None);
}
