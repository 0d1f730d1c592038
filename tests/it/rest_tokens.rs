//! When another token is asked for, and when that would not help.

use icewright::catalog::Catalog;
use icewright::error::{Error, ErrorKind};

use super::rest_client::{catalog_server, commit, connect, empty_config, error_body, ident, oauth};
use crate::support::http_server::Reply;

/// The token is good, so another one would change nothing.
#[tokio::test]
async fn a_right_that_is_missing_is_named_and_costs_no_token() {
    let reply = Reply::json(403, error_body("ForbiddenException"));
    let server = catalog_server(empty_config(), Some(3600.0), vec![reply]);
    let catalog = connect(&server, oauth()).await;
    for _ in 0..5 {
        let error = catalog.load_table(&ident()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(error.to_string().contains("lacks the right to read this table: HTTP 403 Forbidden"), "{error}");
    }
    let error = catalog.list_namespaces(None).await.unwrap_err();
    assert!(error.to_string().contains("lacks the right to list namespaces"), "{error}");
    let (outcome, error) = commit(&catalog).await;
    assert_eq!((outcome, error.as_ref().map(Error::kind)), ("refused", Some(ErrorKind::Forbidden)));
    assert!(error.is_some_and(|e| e.to_string().contains("lacks the right to change this table")));
    assert_eq!(server.targets("/v1/oauth/tokens").len(), 1);
    assert_eq!(server.targets("/tables/t").len(), 6, "each asked once");
}

#[tokio::test]
async fn rejections_renew_a_token_once_a_minute() {
    for (status, expires_in) in [(401, Some(3600.0)), (401, None), (419, Some(3600.0)), (403, None)] {
        let server = catalog_server(empty_config(), expires_in, vec![Reply::status(status)]);
        let catalog = connect(&server, oauth()).await;
        for _ in 0..5 {
            catalog.load_table(&ident()).await.unwrap_err();
        }
        assert_eq!(server.targets("/v1/oauth/tokens").len(), 2, "{status}: one at the start, one for all rejections");
        assert_eq!(server.targets("/tables/t").len(), 6, "{status}: only the renewed token was tried again");
    }
}
