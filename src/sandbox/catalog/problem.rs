//! The error model of the REST specification: a status, a named type and a message.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use iceberg::{NamespaceIdent, TableIdent};
use serde_json::json;

/// An answer other than success.
#[derive(Debug, Clone)]
pub(super) struct CatalogError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

/// What every operation of the catalog yields.
pub(super) type CatalogResult<T> = Result<T, CatalogError>;

impl CatalogError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into() }
    }

    /// The request makes no sense (400).
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestException", message)
    }

    /// There is no such namespace (404).
    pub(super) fn no_such_namespace(namespace: &NamespaceIdent) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchNamespaceException", format!("Namespace does not exist: {namespace}"))
    }

    /// There is no such table (404).
    pub(super) fn no_such_table(table: &TableIdent) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchTableException", format!("Table does not exist: {table}"))
    }

    /// There is no such route (404).
    pub(super) fn no_such_route(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFoundException", format!("No route for {path}"))
    }

    /// The route does not answer this method (405).
    pub(super) fn method_not_allowed(path: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "UnsupportedOperationException",
            format!("{path} does not support this method"),
        )
    }

    /// The namespace or table is there already (409).
    pub(super) fn already_exists(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::CONFLICT, "AlreadyExistsException", format!("Already exists: {what}"))
    }

    /// The namespace still holds something (409).
    pub(super) fn not_empty(namespace: &NamespaceIdent) -> Self {
        Self::new(StatusCode::CONFLICT, "NamespaceNotEmptyException", format!("Namespace is not empty: {namespace}"))
    }

    /// A requirement of a commit no longer holds; nothing was applied (409).
    pub(super) fn commit_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "CommitFailedException", message)
    }

    /// The disk or this server failed (500): whether a commit happened is unknown.
    pub(super) fn internal(doing: impl std::fmt::Display, e: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", format!("{doing}: {e}"))
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for CatalogError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"message": self.message, "type": self.kind, "code": self.status.as_u16()}});
        (self.status, Json(body)).into_response()
    }
}
