//! The API's description in OpenAPI.

use utoipa::openapi::OpenApi as Description;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::problem::ApiProblem;
use super::{actions, views};

#[derive(OpenApi)]
#[openapi(
    info(description = "What icewright knows of the tables it maintains, and what can be asked of it. Looking is free; \
                        whatever makes the daemon do something needs the admin token. Times are milliseconds since the epoch."),
    paths(
        views::status, views::tables, views::table, views::openapi,
        actions::plan, actions::run_now, actions::pause_table, actions::resume_table,
        actions::pause, actions::resume, actions::log_filter, actions::set_log_filter,
    ),
    components(schemas(ApiProblem)),
    modifiers(&AdminToken),
    tags((name = "look", description = "What can be looked at."), (name = "act", description = "What can be asked for.")),
)]
struct Document;

struct AdminToken;

impl Modify for AdminToken {
    fn modify(&self, description: &mut Description) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        description.components.get_or_insert_default().add_security_scheme("admin-token", scheme);
    }
}

/// The description as indented JSON.
pub fn document() -> String {
    // Maps with text keys only: there is nothing that JSON could not hold.
    Document::openapi().to_pretty_json().map(|text| text + "\n").unwrap_or_default()
}
