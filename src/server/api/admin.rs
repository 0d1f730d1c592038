//! Who may make the daemon do something.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use subtle::ConstantTimeEq;
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

use super::problem::{ApiProblem, described};
use crate::error::Result;
use crate::server::ServerState;

/// Reads the admin token. Asked for each request, so that a token that was changed holds at once.
pub type TokenSource = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// The request carries the admin token.
pub(super) struct Admin;

impl FromRequestParts<ServerState> for Admin {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &ServerState) -> Result<Self, ApiProblem> {
        let Some(source) = &state.api.admin else {
            let cure = "set `admin-token = { env = \"NAME\" }` or `{ file = \"PATH\" }` under [server]";
            return Err(ApiProblem::new(
                403,
                format!("no admin token is configured, so this API only shows things: {cure}"),
            ));
        };
        let token = source().map_err(|error| {
            tracing::warn!(%error, "the admin token cannot be read");
            ApiProblem::new(503, "the admin token cannot be read: the log tells why")
        })?;
        let said = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given =
            said.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match given {
            // How long it takes tells nothing about the token but its length.
            Some((_, given)) if bool::from(given.trim().as_bytes().ct_eq(token.as_bytes())) => Ok(Self),
            Some(_) => Err(ApiProblem::new(401, "this is not the admin token")),
            None => Err(ApiProblem::new(401, "this needs the admin token: send `Authorization: Bearer TOKEN`")),
        }
    }
}

impl IntoResponses for Admin {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(&[
            (401, "The admin token is missing or wrong."),
            (403, "No admin token is configured."),
            (503, "The daemon cannot do it now: try again later."),
        ])
    }
}
