//! The files of the page, which are part of the program.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use foldhash::quality::FixedState;
use std::hash::BuildHasher;

const HTML: &str = "text/html; charset=utf-8";

/// A file: where it is served, what it is, its content.
struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

const ASSETS: &[Asset] = &[Asset { path: "/", kind: HTML, content: include_bytes!("page/index.html") }];

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
