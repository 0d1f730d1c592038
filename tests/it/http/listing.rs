//! Many tables, and odd names.

use std::sync::Arc;

use icewright::testing::SetClock;

use super::api::board;
use super::client::{Api, path_of};

fn names(answer: &serde_json::Value) -> Vec<String> {
    let tables = answer["tables"].as_array().expect("a list");
    tables.iter().map(|table| table["table"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn every_table_is_on_one_page_and_a_page_is_small() {
    let all: Vec<String> = (0..1201).map(|i| format!("lake.db.table_{i:04}")).collect();
    let known: Vec<&str> = all.iter().map(String::as_str).collect();
    let api = Api::new(board(&known).0, Arc::new(SetClock::new(5_000)), Arc::<super::client::Orders>::default(), None);
    let first = api.get("/api/v1/tables").await;
    assert!(first.text.len() < 500 * 500, "{} bytes for 500 tables without numbers", first.text.len());
    let mut seen = names(&first.json());
    assert_eq!(seen.len(), 500);
    let mut next = first.json()["next"].as_str().map(ToOwned::to_owned);
    while let Some(after) = next {
        let page = api.view(&format!("/api/v1/tables?limit=400&after={after}")).await;
        seen.extend(names(&page));
        next = page["next"].as_str().map(ToOwned::to_owned);
    }
    assert_eq!(seen, all);
    assert_eq!(names(&api.view("/api/v1/tables?catalog=pond").await), [""; 0]);
    assert_eq!(names(&api.view("/api/v1/tables?health=unknown&limit=2").await), all[..2]);
    assert_eq!(names(&api.view("/api/v1/tables?health=healthy").await), [""; 0]);
}

#[tokio::test]
async fn odd_names_are_found_by_their_encoded_text() {
    let odd = [
        "lake.\"web.logs\".events",
        "lake.a/b.c%2Fd",
        "lake.größe.表 1",
        "lake.db.\"a\"\"b?c#d\"",
        "lake.a.b.c.d",
        "lake.db.+&=;",
    ];
    let api = Api::new(board(&odd).0, Arc::new(SetClock::new(5_000)), Arc::<super::client::Orders>::default(), None);
    for name in odd {
        let view = api.view(&path_of(name)).await;
        assert_eq!(view["table"], name);
        let parsed: icewright::table::TableName = name.parse().expect("a name");
        assert_eq!((view["catalog"].as_str(), view["name"].as_str()), (Some("lake"), Some(parsed.table.as_str())));
        assert_eq!(view["namespace"], parsed.namespace_text());
    }
    let listed = names(&api.view("/api/v1/tables").await);
    let after = percent_encoding::utf8_percent_encode(&listed[2], percent_encoding::NON_ALPHANUMERIC).to_string();
    assert_eq!(names(&api.view(&format!("/api/v1/tables?after={after}")).await), listed[3..]);
}
