//! The files of the page, which are part of the program.

use std::hash::BuildHasher;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use foldhash::quality::FixedState;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file: where it is served, what it is, its content.
#[derive(Clone, Copy)]
struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

/// A file of `page/` under its own name.
macro_rules! file {
    ($name:literal, $kind:ident) => {
        Asset { path: concat!("/", $name), kind: $kind, content: include_bytes!(concat!("page/", $name)) }
    };
}

const ASSETS: [Asset; 17] = [
    Asset { path: "/", kind: HTML, content: include_bytes!("page/index.html") },
    file!("actions.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("columns.js", SCRIPT),
    file!("details.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("fleet.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("icon.svg", SVG),
    file!("main.js", SCRIPT),
    file!("progress.js", SCRIPT),
    file!("runs.js", SCRIPT),
    file!("style.css", CSS),
    file!("table.js", SCRIPT),
    file!("theme.js", SCRIPT),
    file!("words.js", SCRIPT),
];

/// A path for each file.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.into_iter().fold(Router::new(), |router, asset| {
        let tag: Arc<str> = format!("\"{:016x}\"", FixedState::default().hash_one(asset.content)).into();
        router.route(asset.path, get(async move |headers: HeaderMap| answer(&asset, &tag, &headers)))
    })
}

/// The file, or 304 if the browser has it.
fn answer(asset: &Asset, tag: &str, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    // A browser asks again each time, so that page and API are of the same version.
    let always = [(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache")];
    if known.is_some_and(|known| known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag)) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    (always, [(header::CONTENT_TYPE, asset.kind)], asset.content).into_response()
}
