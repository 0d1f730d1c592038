//! Elections over an API server that compares versions: in simulated time with everything going wrong, and over HTTP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use iceberg::TableIdent;
use icewright::catalog::rest::{Auth, RestCatalog, RestCatalogConfig};
use icewright::catalog::{Catalog, CommitOutcome};
use icewright::error::{Error, ErrorKind, Result};
use icewright::leader::lease::{Cluster, HttpLease, LeaseApi, LeaseObject, LeaseWrite};
use icewright::leader::record::Timing;
use icewright::leader::{Election, LeadershipEnd};
use icewright::permit::WritePermit;
use icewright::testing::SetClock;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::support::http_server::{HttpServer, Reply};

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
/// What a replica that waits needs at most after the moment it may: its pause, and a slow round.
const ROUND: Duration = Duration::from_millis(2_400 + 3_000);

/// The API server's one Lease.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<(u64, Option<Value>)>>);

impl Api {
    fn get(&self) -> Option<Value> {
        self.0.lock().unwrap().1.clone()
    }

    fn holder(&self) -> String {
        self.get().map_or_else(String::new, |lease| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned())
    }

    /// `None`: somebody else was faster.
    fn store(&self, mut lease: Value, new: bool) -> Option<Value> {
        let mut guard = self.0.lock().unwrap();
        let (version, stored) = &mut *guard;
        let matches = match stored {
            Some(stored) => !new && stored["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"],
            None => new,
        };
        if !matches {
            return None;
        }
        *version += 1;
        lease["metadata"]["resourceVersion"] = version.to_string().into();
        *stored = Some(lease.clone());
        Some(lease)
    }
}

/// One replica's way to the API server.
#[derive(Clone)]
struct Line {
    api: Api,
    trouble: Arc<Mutex<Trouble>>,
    /// Drives latencies and faults; the same seed gives the same story.
    random: Arc<AtomicU64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Trouble {
    /// Nothing comes through.
    cut: bool,
    /// Writes are done, and their answers lost: of a thousand.
    lost_answers: u64,
    /// Longest time that a request takes each way, milliseconds.
    latency_ms: u64,
}

impl Line {
    fn new(api: &Api, seed: u64) -> Self {
        let random = Arc::new(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        Self { api: api.clone(), trouble: Arc::default(), random }
    }

    fn set(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap() = trouble;
    }

    /// A number below `limit`.
    fn draw(&self, limit: u64) -> u64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        x % limit.max(1)
    }

    async fn travel(&self) -> Result<()> {
        let Trouble { cut, latency_ms, .. } = *self.trouble.lock().unwrap();
        sleep(Duration::from_millis(self.draw(latency_ms + 1))).await;
        if cut {
            sleep(Duration::from_secs(3600)).await;
        }
        Ok(())
    }

    async fn write(&self, lease: Value, new: bool) -> Result<LeaseWrite> {
        self.travel().await?;
        let written = self.api.store(lease, new);
        if self.draw(1000) < self.trouble.lock().unwrap().lost_answers {
            return Err(Error::unavailable("connection reset"));
        }
        self.travel().await?;
        Ok(written.map_or(LeaseWrite::Raced, |lease| LeaseWrite::Done(LeaseObject(lease))))
    }
}

#[async_trait]
impl LeaseApi for Line {
    async fn get(&self) -> Result<Option<LeaseObject>> {
        self.travel().await?;
        let found = self.api.get().map(LeaseObject);
        self.travel().await?;
        Ok(found)
    }

    async fn create(&self, spec: Value) -> Result<LeaseWrite> {
        self.write(json!({"metadata": {}, "spec": spec}), true).await
    }

    async fn replace(&self, lease: LeaseObject) -> Result<LeaseWrite> {
        self.write(lease.0, false).await
    }
}

/// A process that is started again whenever it has lost; aborted when dropped.
struct Replica {
    line: Line,
    permit: Arc<Mutex<WritePermit>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Replica {
    /// Its clock stands `skew_ms` beside the others'.
    fn start(api: &Api, name: &'static str, seed: u64, skew_ms: i64) -> Self {
        let (line, stop) = (Line::new(api, seed), CancellationToken::new());
        let permit = Arc::new(Mutex::new(WritePermit::withheld()));
        let (shared, current, token) = (line.clone(), permit.clone(), stop.clone());
        // Identifiers of this clock count up, so each start has another name.
        let clock = Arc::new(SetClock::new(1_800_000_000_000 + skew_ms));
        let task = tokio::spawn(async move {
            while !token.is_cancelled() {
                let permit = WritePermit::withheld();
                *current.lock().unwrap() = permit.clone();
                let mut election = Election::new(name, TIMING, Box::new(shared.clone()), clock.clone(), permit);
                if !election.win(&token, || ()).await {
                    return;
                }
                if election.hold(&token).await == LeadershipEnd::Stopped {
                    election.release().await;
                }
            }
        });
        Self { line, permit, stop, task }
    }

    fn leads(&self) -> bool {
        self.permit.lock().unwrap().holds()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn wait_until(limit: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() <= limit, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn never_two_lead_whatever_the_network_does() {
    let mut reigns = 0;
    for seed in 1..=12 {
        let api = Api::default();
        let replicas = [("a", 0_i64), ("b", 86_400_000), ("c", -3_600_000)];
        let replicas = replicas.map(|(name, skew)| Replica::start(&api, name, seed * 7 + skew.unsigned_abs(), skew));
        let dice = Line::new(&api, seed);
        let mut last = None;
        for step in 0..20_000 {
            if step % 100 == 0 {
                let line = &replicas[dice.draw(3) as usize].line;
                line.set(Trouble {
                    cut: dice.draw(4) == 0,
                    lost_answers: dice.draw(400),
                    latency_ms: dice.draw(3) * dice.draw(2_500),
                });
            }
            sleep(Duration::from_millis(50)).await;
            let leading: Vec<usize> = (0..3).filter(|i| replicas[*i].leads()).collect();
            assert!(leading.len() <= 1, "seed {seed}, step {step}: {leading:?}");
            if leading.first().is_some_and(|leader| last != Some(*leader)) {
                last = leading.first().copied();
                reigns += 1;
            }
        }
        assert!(last.is_some(), "seed {seed}: nobody ever led");
    }
    assert!(reigns > 50, "leadership moves: {reigns}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let api = Api::default();
    let a = Replica::start(&api, "a", 1, 0);
    wait_until(ROUND, "a leads", || a.leads()).await;
    let b = Replica::start(&api, "b", 2, -1_000_000);
    sleep(Duration::from_secs(60)).await;
    assert!(a.leads() && !b.leads() && api.holder().starts_with("a_"));

    a.line.set(Trouble { cut: true, ..Trouble::default() });
    let stopped = wait_until(TIMING.renew_deadline, "a stops", || !a.leads()).await;
    assert!(stopped >= TIMING.renew_deadline - TIMING.retry_period, "no sooner than needed: {stopped:?}");
    assert!(!b.leads());
    let taken = stopped + wait_until(TIMING.lease_duration + ROUND - stopped, "b leads", || b.leads()).await;
    assert!(taken >= TIMING.lease_duration - TIMING.retry_period, "{taken:?}");
    assert_eq!(api.get().unwrap()["spec"]["leaseTransitions"], 1);
    // The process that was cut off comes back as a candidate like any other.
    a.line.set(Trouble::default());
    sleep(Duration::from_secs(120)).await;
    assert!(b.leads() && !a.leads());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_look() {
    let api = Api::default();
    let a = Replica::start(&api, "a", 1, 0);
    wait_until(ROUND, "a leads", || a.leads()).await;
    let b = Replica::start(&api, "b", 2, 0);
    sleep(Duration::from_secs(30)).await;
    a.stop.cancel();
    wait_until(Duration::from_millis(2_450), "b leads", || b.leads()).await;
    assert!(!a.leads() && api.holder().starts_with("b_"));
    b.stop.cancel();
    wait_until(Duration::from_secs(1), "b releases", || api.holder().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_found_at_the_next_look() {
    let api = Api::default();
    let a = Replica::start(&api, "a", 1, 0);
    a.line.set(Trouble { lost_answers: 1000, ..Trouble::default() });
    sleep(Duration::from_secs(9)).await;
    assert!(api.holder().starts_with("a_") && !a.leads(), "it cannot know");
    a.line.set(Trouble::default());
    wait_until(ROUND, "a leads", || a.leads()).await;
    assert_eq!(api.get().unwrap()["spec"]["leaseTransitions"], 0, "still the same reign");
}

/// Others counted on while this machine was suspended, and tokio's clock stood still.
#[tokio::test(start_paused = true)]
async fn a_leader_that_was_suspended_writes_nothing_and_has_lost() {
    let (api, clock) = (Api::default(), Arc::new(SetClock::new(0)));
    let permit = WritePermit::withheld_by(clock.clone());
    let mut election = Election::new("a", TIMING, Box::new(Line::new(&api, 1)), clock.clone(), permit.clone());
    let stop = CancellationToken::new();
    assert!(election.win(&stop, || ()).await && permit.holds());
    clock.suspend(TIMING.renew_deadline);
    assert!(!permit.holds());
    assert!(matches!(election.hold(&stop).await, LeadershipEnd::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn an_edited_lease_ends_leadership_at_the_next_look() {
    let api = Api::default();
    let permit = WritePermit::withheld();
    let line = Box::new(Line::new(&api, 1));
    let mut election = Election::new("a", TIMING, line, Arc::new(SetClock::new(0)), permit.clone());
    let stop = CancellationToken::new();
    assert!(election.win(&stop, || ()).await && permit.holds());
    let mut lease = api.get().unwrap();
    lease["spec"]["holderIdentity"] = "somebody".into();
    api.store(lease, false).unwrap();
    assert_eq!(election.hold(&stop).await, LeadershipEnd::Lost("somebody holds the lease now".into()));
    assert!(!permit.holds());
    // What is somebody else's is not released.
    election.release().await;
    assert_eq!(api.holder(), "somebody");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_gets_no_answer_shows_that_it_lives_within_a_minute() {
    let line = Line::new(&Api::default(), 1);
    line.set(Trouble { cut: true, ..Trouble::default() });
    let (lease_duration, renew_deadline, retry_period) =
        (Duration::from_secs(600), Duration::from_secs(500), Duration::from_secs(30));
    let timing = Timing { lease_duration, renew_deadline, retry_period };
    let clock = Arc::new(SetClock::new(0));
    let mut election = Election::new("a", timing, Box::new(line), clock, WritePermit::withheld());
    let shown = Mutex::new(vec![Instant::now()]);
    let (stop, each_round) = (CancellationToken::new(), || shown.lock().unwrap().push(Instant::now()));
    let watched = tokio::time::timeout(Duration::from_secs(3600), election.win(&stop, each_round));
    assert!(watched.await.is_err(), "it never leads");
    let shown = shown.lock().unwrap();
    assert!(shown.len() > 60 && shown.windows(2).all(|pair| pair[1] - pair[0] < Duration::from_secs(60)), "{shown:?}");
}

/// The same Lease over HTTP, for whoever has the token.
async fn serve(api: Api, token: &'static str) -> Cluster {
    type Shared = State<(Api, &'static str)>;
    let authorized = |headers: &HeaderMap, token: &str| {
        headers.get("authorization").is_some_and(|value| value.as_bytes() == format!("Bearer {token}").as_bytes())
    };
    let status = |code: StatusCode, message: &str| {
        (code, Json(json!({"kind": "Status", "message": message, "code": code.as_u16()}))).into_response()
    };
    let read = move |State((api, token)): Shared, Path((_, name)): Path<(String, String)>, headers: HeaderMap| async move {
        if !authorized(&headers, token) {
            return status(StatusCode::FORBIDDEN, "leases is forbidden");
        }
        match api.get().filter(|lease| lease["metadata"]["name"] == name) {
            Some(lease) => Json(lease).into_response(),
            None => status(StatusCode::NOT_FOUND, "not found"),
        }
    };
    let write = |new: bool| {
        move |State((api, token)): Shared, headers: HeaderMap, Json(lease): Json<Value>| async move {
            if !authorized(&headers, token) {
                return status(StatusCode::FORBIDDEN, "leases is forbidden");
            }
            match api.store(lease, new) {
                Some(lease) => Response::new(lease.to_string().into()),
                None => status(StatusCode::CONFLICT, "the object has been modified"),
            }
        }
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
    let router = Router::new()
        .route(leases, post(write(true)))
        .route(&format!("{leases}/{{name}}"), get(read).put(write(false)))
        .with_state((api, token));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap().keep();
    std::fs::write(folder.join("token"), format!("{token}\n")).unwrap();
    Cluster { uri, token_file: folder.join("token"), ca_file: None, namespace: Some("data".into()) }
}

#[tokio::test]
async fn a_lease_is_read_made_changed_and_contended_over_http() {
    let api = Api::default();
    let cluster = serve(api.clone(), "secret-1").await;
    let lease = HttpLease::new(&cluster, "data", "icewright").unwrap();
    assert_eq!(lease.get().await.unwrap(), None);
    let made = lease.create(json!({"holderIdentity": "a"})).await.unwrap();
    assert!(matches!(&made, LeaseWrite::Done(stored) if stored.record().holder == "a"), "{made:?}");
    assert_eq!(lease.create(json!({"holderIdentity": "b"})).await.unwrap(), LeaseWrite::Raced);
    let stored = api.get().unwrap();
    assert_eq!(stored["metadata"]["namespace"], "data");
    assert_eq!((&stored["apiVersion"], &stored["kind"]), (&"coordination.k8s.io/v1".into(), &"Lease".into()));

    // What others wrote into it stays.
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"team": "lake"});
    api.store(labelled, false).unwrap();
    assert_eq!(lease.replace(LeaseObject(stored)).await.unwrap(), LeaseWrite::Raced, "its version is old");
    let permit = WritePermit::withheld();
    let clock = Arc::new(SetClock::new(1_767_225_600_123));
    let mut election = Election::new("pod-1", TIMING, Box::new(lease), clock, permit.clone());
    let mut freed = api.get().unwrap();
    freed["spec"]["holderIdentity"] = "".into();
    api.store(freed, false).unwrap();
    assert!(election.win(&CancellationToken::new(), || ()).await && permit.holds());
    let held = api.get().unwrap();
    assert_eq!(held["metadata"]["labels"]["team"], "lake");
    assert!(held["spec"]["holderIdentity"].as_str().unwrap().starts_with("pod-1_"));
    assert_eq!(held["spec"]["renewTime"], "2026-01-01T00:00:00.123000Z");
    assert_eq!((&held["spec"]["leaseDurationSeconds"], &held["spec"]["leaseTransitions"]), (&15.into(), &1.into()));
    election.release().await;
    assert_eq!(api.holder(), "");
    assert!(!permit.holds());
}

#[tokio::test]
async fn the_token_is_read_anew_and_a_missing_right_is_told() {
    let cluster = serve(Api::default(), "secret-2").await;
    let lease = HttpLease::new(&cluster, "data", "icewright").unwrap();
    std::fs::write(&cluster.token_file, "old").unwrap();
    let error = lease.get().await.expect_err("forbidden").to_string();
    assert!(error.contains("lease data/icewright") && error.contains("needs get, create and update"), "{error}");
    assert!(!error.contains("old"));
    std::fs::write(&cluster.token_file, "secret-2").unwrap();
    assert_eq!(lease.get().await.unwrap(), None);
}

#[test]
fn a_pod_finds_its_cluster() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("namespace"), "data\n").unwrap();
    let with = |host: &'static str| {
        move |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("6443".to_owned()),
            _ => None,
        }
    };
    let cluster = Cluster::of_pod(with("10.0.0.1"), folder.path()).unwrap();
    assert_eq!((cluster.uri.as_str(), cluster.namespace.as_deref()), ("https://10.0.0.1:6443", Some("data")));
    assert_eq!(Cluster::of_pod(with("fd00::1"), folder.path()).unwrap().uri, "https://[fd00::1]:6443");
    let error = Cluster::of_pod(|_| None, folder.path()).expect_err("no pod").to_string();
    assert!(error.contains("KUBERNETES_SERVICE_HOST is not set") && error.contains("enabled = false"), "{error}");
}

#[tokio::test]
async fn without_a_permit_no_commit_is_sent() {
    let server = HttpServer::start(|request| match request.target.starts_with("/v1/config") {
        true => Reply::json(200, json!({"defaults": {}, "overrides": {}})),
        false => Reply::status(409),
    });
    let (name, uri, warehouse, properties) = ("lake".into(), server.uri(), None, Default::default());
    let config = RestCatalogConfig { name, uri, warehouse, properties, auth: Auth::None };
    let permit = WritePermit::withheld();
    let catalog = RestCatalog::connect(config).await.unwrap().with_permit(permit.clone());
    let table = TableIdent::from_strs(["db", "t"]).unwrap();
    let outcome = catalog.commit_table(&table, Vec::new(), Vec::new(), &|| Ok(())).await;
    assert!(matches!(&outcome, CommitOutcome::NotSent(e) if e.kind() == ErrorKind::Cancelled), "{outcome:?}");
    assert_eq!(server.targets("/tables/t").len(), 0);
    permit.grant(Instant::now() + Duration::from_secs(60));
    assert!(matches!(
        catalog.commit_table(&table, Vec::new(), Vec::new(), &|| Ok(())).await,
        CommitOutcome::Conflict(_)
    ));
    assert_eq!(server.targets("/tables/t").len(), 1);
}
