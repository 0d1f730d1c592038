//! The files of the page, which are part of the program.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use foldhash::quality::FixedState;
use std::hash::BuildHasher;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file: where it is served, what it is, its content.
struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

const ASSETS: &[Asset] = &[
    Asset { path: "/", kind: HTML, content: include_bytes!("page/index.html") },
    Asset { path: "/actions.js", kind: JS, content: include_bytes!("page/actions.js") },
    Asset { path: "/api.js", kind: JS, content: include_bytes!("page/api.js") },
    Asset { path: "/chart.js", kind: JS, content: include_bytes!("page/chart.js") },
    Asset { path: "/columns.js", kind: JS, content: include_bytes!("page/columns.js") },
    Asset { path: "/details.js", kind: JS, content: include_bytes!("page/details.js") },
    Asset { path: "/dom.js", kind: JS, content: include_bytes!("page/dom.js") },
    Asset { path: "/fleet.js", kind: JS, content: include_bytes!("page/fleet.js") },
    Asset { path: "/format.js", kind: JS, content: include_bytes!("page/format.js") },
    Asset { path: "/icon.svg", kind: SVG, content: include_bytes!("page/icon.svg") },
    Asset { path: "/main.js", kind: JS, content: include_bytes!("page/main.js") },
    Asset { path: "/progress.js", kind: JS, content: include_bytes!("page/progress.js") },
    Asset { path: "/runs.js", kind: JS, content: include_bytes!("page/runs.js") },
    Asset { path: "/style.css", kind: CSS, content: include_bytes!("page/style.css") },
    Asset { path: "/table.js", kind: JS, content: include_bytes!("page/table.js") },
    Asset { path: "/theme.js", kind: JS, content: include_bytes!("page/theme.js") },
    Asset { path: "/words.js", kind: JS, content: include_bytes!("page/words.js") },
];

/// A path for each file.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        let tag = format!("\"{:016x}\"", FixedState::default().hash_one(asset.content));
        router.route(asset.path, get(move |headers: HeaderMap| async move { answer(asset, &tag, &headers) }))
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
