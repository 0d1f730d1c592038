//! Tables with columns that this version does not know, beside ordinary ones.

use icewright::table::TableName;
use serde_json::json;

use super::scheduler::{Daemon, grown, until};
use super::world::{HOUR, Lake, MINUTE, ident};

#[tokio::test(start_paused = true)]
async fn a_table_of_unknown_types_is_cleaned_and_stops_no_other() {
    let lake = Lake::new();
    let (litter, neighbour_s) = (grown(&lake, "v").await, grown(&lake, "t").await);
    lake.catalog.tamper_json(&ident("v"), |mut document| {
        document["format-version"] = 3.into();
        document["next-row-id"] = 40.into();
        let fields = document["schemas"][0]["fields"].as_array_mut().expect("fields");
        fields.push(json!({"id": 3, "name": "payload", "required": false, "type": "variant"}));
        document
    });
    tokio::time::sleep(HOUR).await;
    let daemon = Daemon::start(&lake, 1);
    until(MINUTE, "its snapshots expire and its garbage goes", || async {
        lake.snapshots("v").await == 1 && !lake.has(&litter)
    })
    .await;
    until(HOUR, "the other is compacted and cleaned", || async {
        lake.files("t").await.len() == 2 && lake.snapshots("t").await == 1 && !lake.has(&neighbour_s)
    })
    .await;
    assert!(daemon.runs("v", "rewrite-data-files", "skipped") >= 1.0);
    assert_eq!(daemon.runs("v", "rewrite-data-files", "failed"), 0.0);
    let labels = r#"action="rewrite-data-files",catalog="lake",namespace="db",table="v""#;
    assert_eq!(daemon.value("icewright_table_refused", labels), 1.0);
    let name: TableName = "lake.db.v".parse().expect("a name");
    let table = daemon.board.table(&name, lake.clock.now_ms()).expect("known");
    let why = "column payload of schema 0 has the type variant";
    assert!(
        table.runs.iter().any(|run| run.reason.as_ref().is_some_and(|reason| reason.contains(why))),
        "the page tells why it is not compacted"
    );
    until(6 * MINUTE, "its files are counted", || async {
        daemon.value("icewright_table_data_files", "table=\"v\"") == 4.0
    })
    .await;
    daemon.stop().await;
}
