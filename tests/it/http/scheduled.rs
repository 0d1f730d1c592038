//! What the API shows of a table while scheduler and collector work on it, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use icewright::error::{Error, Result};
use icewright::schedule::control::Control;
use icewright::server::Operate;
use icewright::table::TableName;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Api, Orders, TOKEN};
use crate::schedule::scheduler::{Daemon, grown, until};
use crate::schedule::world::{HOUR, Lake, MINUTE};

const TABLE: &str = "/api/v1/tables/lake.db.t";

fn api(daemon: &Daemon, lake: &Lake) -> Api {
    Api::new(daemon.board.clone(), lake.clock.clone(), Arc::<Orders>::default(), Some(TOKEN))
}

/// Hands orders on to the scheduler.
struct Handing(Control);

#[async_trait]
impl Operate for Handing {
    async fn run_now(&self, table: &TableName) -> Result<()> {
        self.0.run_now(table).await
    }

    async fn pause(&self, table: Option<&TableName>, reason: String) -> Result<()> {
        self.0.pause(table, reason).await
    }

    async fn resume(&self, table: Option<&TableName>) -> Result<()> {
        self.0.resume(table).await
    }

    async fn plan(&self, table: &TableName) -> Result<Box<RawValue>> {
        Err(Error::internal(format!("no plan of {table} was expected")))
    }
}

/// The run entry of an action among the view's runs.
fn run<'v>(view: &'v Value, action: &str) -> &'v Value {
    let runs = view["runs"].as_array().expect("a list");
    runs.iter().find(|run| run["action"] == action).unwrap_or_else(|| panic!("{action}: {runs:?}"))
}

#[tokio::test(start_paused = true)]
async fn a_table_is_shown_from_its_first_look_to_the_end_of_its_run() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let before = lake.files("t").await.len();
    let daemon = Daemon::start(&lake, 1);
    let api = api(&daemon, &lake);
    until(MINUTE, "known", || async { api.get(TABLE).await.status == 200 }).await;
    until(HOUR, "compacted", || async { api.view(TABLE).await["step"] == "delay" }).await;
    until(HOUR, "collected", || async { api.view(TABLE).await["stats"]["data-files"] == 2 }).await;
    let view = api.view(TABLE).await;
    assert_eq!((&view["health"], &view["reasons"]), (&json!("healthy"), &json!([])));
    assert_eq!(
        (&view["policies"], &view["paused"], &view["quarantined"]),
        (&json!(["all"]), &Value::Null, &json!(false))
    );
    assert_eq!((&view["progress"], &view["consecutive-failures"]), (&Value::Null, &json!(0)));
    assert_eq!(view["next-step"]["step"], "clean-up");

    let rewrite = run(&view, "rewrite-data-files");
    assert_eq!(rewrite["outcome"], "success");
    assert_eq!(rewrite["counts"]["rewritten-data-files"], before);
    assert_eq!(rewrite["counts"]["added-data-files"], 2);
    assert_eq!(rewrite["report"]["planned-groups"], 2);
    assert_eq!(rewrite["report"]["errors"], json!([]));
    assert_eq!(view["last-runs"]["rewrite-data-files"]["run-id"], rewrite["run-id"]);
    assert!(view["last-runs"]["rewrite-data-files"].get("report").is_none(), "only among the runs");
    let wait_ms =
        view["next-step"]["at-ms"].as_i64().expect("a time") - rewrite["finished-at-ms"].as_i64().expect("a time");
    assert!((29 * 60_000..=30 * 60_000).contains(&wait_ms), "three commit intervals after the commit: {wait_ms}");

    let snapshots = view["snapshots"].as_array().expect("a list");
    assert_eq!(snapshots.len(), lake.snapshots("t").await);
    let newest = &snapshots[0];
    assert_eq!((&newest["run-id"], &newest["operation"]), (&rewrite["run-id"], &json!("replace")));
    assert_eq!((&newest["current"], &newest["refs"]), (&json!(true), &json!(["main"])));
    assert_eq!(newest["total-data-files"], 2);
    assert_eq!(newest["parent-id"], snapshots[1]["snapshot-id"]);
    assert!(newest["snapshot-id"].is_string() && snapshots[1]["run-id"].is_null());

    let samples = view["samples"].as_array().expect("a list");
    assert_eq!(samples.last().expect("a sample")["data-files"], 2);
    assert!(samples.is_sorted_by_key(|sample| sample["at-ms"].as_i64()));
    let partitions = view["partitions"].as_array().expect("a list");
    assert_eq!(partitions.len(), 2);
    assert_eq!(partitions[0]["data-files"], 1);
    assert_eq!(view["size-histogram"]["target-bytes"], 512 << 20);
    assert_eq!(view["size-histogram"]["buckets"][0]["files"], 2);
    assert_eq!(view["size-histogram"]["buckets"], view["stats"]["size-histogram"]);
    let setting = |key: &str| {
        let settings = view["policy"].as_array().expect("a list");
        settings.iter().find(|s| s["key"] == key).unwrap_or_else(|| panic!("{key}")).clone()
    };
    let every = setting("every");
    assert_eq!(every["value"], "\"6h\"");
    assert!(every["origin"].as_str().is_some_and(|origin| origin.starts_with("policy \"all\" line ")), "{every}");
    assert_eq!(setting("delay")["value"], "\"3x\"");
    assert_eq!(
        setting("rewrite-data-files.min-input-files"),
        json!({
        "key": "rewrite-data-files.min-input-files", "value": "5", "origin": "built-in default"})
    );
    assert_eq!(view["plan"]["plan"]["rewrite-data-files"]["would"]["input-files"], before, "the run's own plan");

    until(HOUR, "cleaned", || async { api.view(TABLE).await["step"] == "idle" }).await;
    let view = api.view(TABLE).await;
    assert_eq!(run(&view, "expire-snapshots")["outcome"], "success");
    assert!(run(&view, "expire-snapshots")["counts"]["expired-snapshots"].as_u64() > Some(0));
    assert_eq!(run(&view, "remove-orphan-files")["counts"]["deleted-files"], 1, "the litter");
    assert_eq!(run(&view, "remove-orphan-files")["run-id"], run(&view, "rewrite-data-files")["run-id"]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_not_changed_is_not_sent_again() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    let api = api(&daemon, &lake);
    until(HOUR, "compacted", || async { daemon.board.tables(&all(), lake.clock.now_ms()).tables.len() == 1 }).await;
    until(HOUR, "waits", || async { api.get(TABLE).await.json()["step"] == "delay" }).await;
    tokio::time::sleep(MINUTE * 6).await;
    for path in ["/api/v1/tables", TABLE] {
        let first = api.get(path).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let again = api.get_unless(path, &format!("W/\"other\", {}", first.header("etag"))).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
        assert_eq!(again.header("etag"), first.header("etag"));
        tokio::time::sleep(MINUTE * 6).await;
        let collected = api.get_unless(path, first.header("etag")).await;
        assert_eq!(collected.status, 200, "numbers were collected");
        assert!(collected.json()["now-ms"].as_i64() > first.json()["now-ms"].as_i64());
    }
    daemon.stop().await;
}

fn all() -> icewright::report::board::TableSelection {
    icewright::report::board::TableSelection { limit: 1000, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_of_catalogs_queue_and_memory() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    let api = api(&daemon, &lake);
    until(HOUR, "compacted", || async { api.get(TABLE).await.json()["step"] == "delay" }).await;
    let status = api.view("/api/v1/status").await;
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["leader"], &status["paused"], &status["admin"]), (&json!(true), &Value::Null, &json!(true)));
    assert_eq!(status["memory"]["budget-bytes"], 256 << 20);
    assert_eq!(status["memory"]["reserved-bytes"], 0);
    assert!(status["memory"]["manifest-cache-bytes"].as_u64() > Some(0));
    assert_eq!((&status["queue"]["running"], &status["queue"]["queued"]), (&json!(0), &json!(0)));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_table_says_why() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let list = lake.load("t").await.current_snapshot().expect("a snapshot").manifest_list().to_owned();
    lake.store.put(&list, "garbage");
    let daemon = Daemon::start(&lake, 1);
    let api = api(&daemon, &lake);
    until(HOUR, "quarantined", || async { api.get(TABLE).await.json()["quarantined"] == true }).await;
    until(HOUR, "unreadable", || async { api.view(TABLE).await["reasons"].as_array().is_some_and(|r| r.len() == 3) })
        .await;
    let view = api.view(TABLE).await;
    let reasons: Vec<&Value> = view["reasons"].as_array().expect("a list").iter().map(|r| &r["reason"]).collect();
    assert_eq!(reasons, ["quarantined", "failing", "unreadable"]);
    assert_eq!((&view["health"], &view["stats"]), (&json!("unhealthy"), &Value::Null));
    let failed = run(&view, "rewrite-data-files");
    assert_eq!((&failed["outcome"], &failed["report"]["metadata-invalid"]), (&json!("failed"), &json!(true)));
    assert!(failed["reason"].as_str().is_some_and(|reason| reason.contains(&list)), "{failed}");
    let listed = api.view("/api/v1/tables?health=unhealthy").await;
    assert_eq!(listed["tables"][0]["table"], "lake.db.t");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn orders_take_effect_and_show() {
    let lake = Lake::new();
    grown(&lake, "t").await;
    let daemon = Daemon::start(&lake, 1);
    let operate = Arc::new(Handing(daemon.control.clone()));
    let api = Api::new(daemon.board.clone(), lake.clock.clone(), operate, Some(TOKEN));
    until(HOUR * 8, "cleaned", || async {
        api.get(TABLE).await.json()["runs"].as_array().is_some_and(|r| r.len() == 3)
    })
    .await;
    let due_ms = api.view(TABLE).await["next-step"]["at-ms"].as_i64().expect("a time");
    assert!(due_ms > lake.clock.now_ms() + 3_600_000, "not for hours");

    let paused = api.post(&format!("{TABLE}/pause"), Some(json!({"reason": "migration"}))).await;
    assert_eq!(paused.json()["paused"]["reason"], "migration");
    assert_eq!(api.view(TABLE).await["paused"], paused.json()["paused"]);
    let refused = api.post(&format!("{TABLE}/run"), None).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert_eq!(api.post(&format!("{TABLE}/resume"), None).await.json(), json!({"paused": null}));

    assert_eq!(api.post("/api/v1/pause", None).await.json()["paused"]["reason"], "");
    assert!(api.view("/api/v1/status").await["paused"]["since-ms"].as_i64() > Some(0));
    assert_eq!(api.view(TABLE).await["paused"], Value::Null, "the table itself is not");
    assert_eq!(api.post("/api/v1/resume", None).await.json(), json!({"paused": null}));

    lake.append("t", 0..2).await;
    assert_eq!(api.post(&format!("{TABLE}/run"), None).await.status, 202);
    until(MINUTE, "compacted", || async { api.view(TABLE).await["runs"].as_array().is_some_and(|r| r.len() == 4) })
        .await;
    assert_eq!(run(&api.view(TABLE).await, "rewrite-data-files")["outcome"], "success");
    assert!(lake.clock.now_ms() < due_ms, "long before its time");
    daemon.stop().await;
}
