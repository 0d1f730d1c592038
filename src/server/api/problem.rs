//! Errors as answers.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::{Content, Ref, RefOr, Response as Described, ResponseBuilder};

use crate::error::{Error, ErrorKind};

/// Why a request was not answered as it was meant, after RFC 9457.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ApiProblem {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong, and the cure.
    detail: String,
}

impl ApiProblem {
    /// A problem with this HTTP status.
    pub(super) fn new(status: u16, detail: impl Into<String>) -> Self {
        let title = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("Error");
        Self { kind: "about:blank", title, status, detail: detail.into() }
    }
}

impl From<Error> for ApiProblem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NotFound => 404,
            ErrorKind::Conflict => 409,
            ErrorKind::Config => 400,
            ErrorKind::Unavailable | ErrorKind::Cancelled | ErrorKind::OutOfMemory => 503,
            // It is not the caller of this API who lacks a right.
            ErrorKind::Forbidden
            | ErrorKind::CommitUnknown
            | ErrorKind::Unsupported
            | ErrorKind::DataInvalid
            | ErrorKind::Internal => 500,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"icewright\""));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

/// Problems with these statuses, for the API's description.
pub(super) fn described(problems: &[(u16, &str)]) -> BTreeMap<String, RefOr<Described>> {
    let one = |(status, when): &(u16, &str)| {
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        let response = ResponseBuilder::new().description(*when).content("application/problem+json", content);
        (status.to_string(), RefOr::T(response.build()))
    };
    problems.iter().map(one).collect()
}
