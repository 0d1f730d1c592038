//! JSON in and out.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use foldhash::quality::FixedState;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{ObjectBuilder, RefOr, Required, Response as Described, Type};
use utoipa::{IntoParams, IntoResponses};

use super::problem::{ApiProblem, described};
use crate::error::Error;
use crate::report::board::view::{TableList, TableView};
use crate::server::ServerState;
use crate::table::TableName;

/// A table that is maintained, by the name in the path.
pub(super) struct Named(pub(super) TableName);

impl FromRequestParts<ServerState> for Named {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ServerState) -> Result<Self, ApiProblem> {
        let malformed = |rejection: PathRejection| ApiProblem::new(404, format!("no table is called so: {rejection}"));
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(malformed)?;
        let name = text.parse::<TableName>().map_err(|error| ApiProblem::new(404, error.to_string()))?;
        if state.api.board.knows(&name) { Ok(Self(name)) } else { Err(unknown_table(&name)) }
    }
}

impl IntoParams for Named {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let name = ParameterBuilder::new().name("table").parameter_in(ParameterIn::Path).required(Required::True);
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        vec![name.description(Some("`catalog.namespace.table`, percent-encoded.")).schema(Some(text)).build()]
    }
}

impl IntoResponses for Named {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[(404, "The table is not maintained.")])
    }
}

pub(super) fn unknown_table(name: &TableName) -> ApiProblem {
    let cure = "it is not in its catalog, or no policy matches it";
    ApiProblem::new(404, format!("table {name} is not maintained by this daemon: {cure}"))
}

/// The parameters behind `?`; unknown ones are refused.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<ServerState> for Parameters<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ServerState) -> Result<Self, ApiProblem> {
        let wrong = |rejection: QueryRejection| ApiProblem::new(400, rejection.body_text());
        let Query(parameters) = Query::<T>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Self(parameters))
    }
}

/// A body of JSON; none at all and `null` count as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<ServerState> for Body<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, ApiProblem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        let wrong = |rejection: BytesRejection| ApiProblem::new(rejection.status().as_u16(), rejection.body_text());
        let body = Bytes::from_request(request, state).await.map_err(wrong)?;
        if !body.is_empty() && kind.as_deref() != Some("application/json") {
            return Err(ApiProblem::new(415, "send the body as JSON: `Content-Type: application/json`"));
        }
        let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
        let malformed = |e| ApiProblem::new(400, format!("malformed body: {e}"));
        // Only an object: a list would do for the reader's structs as well.
        let fields: Option<Map<String, Value>> = serde_json::from_slice(text).map_err(malformed)?;
        Ok(Self(serde_json::from_value(fields.unwrap_or_default().into()).map_err(malformed)?))
    }
}

impl<T> IntoResponses for Body<T> {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[
            (400, "The body is malformed."),
            (413, "The body is too long."),
            (415, "The body is not declared as JSON."),
        ])
    }
}

/// A view that carries the daemon's clock, which is no part of what it shows.
pub(super) trait Timed: Serialize {
    fn now_ms(&mut self) -> &mut i64;
}

impl Timed for TableList {
    fn now_ms(&mut self) -> &mut i64 {
        &mut self.now_ms
    }
}

impl Timed for TableView {
    fn now_ms(&mut self) -> &mut i64 {
        &mut self.now_ms
    }
}

/// The view, or 304 if it shows what the client has already, whatever the time.
pub(super) fn unless_known<V: Timed>(headers: &HeaderMap, mut view: V) -> Result<Response, ApiProblem> {
    let now_ms = std::mem::take(view.now_ms());
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(&serde_json::to_vec(&view).map_err(Error::from)?);
    let tag = format!("W/\"{:016x}\"", hasher.finish());
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    if known.flat_map(|value| value.split(',')).any(|value| value.trim() == tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    *view.now_ms() = now_ms;
    Ok(([(header::ETAG, tag)], axum::Json(view)).into_response())
}
