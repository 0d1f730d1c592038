//! What an answer means. Pure.
//!
//! A commit is *refused* or in *conflict* only on an answer that says so. Everything else may have been applied.
//! What an answer says holds for one delivery of the request; whether another one was applied, only the table tells.

use serde::Deserialize;

use crate::error::{Error, ErrorKind};

/// What to do after one attempt to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitClass {
    /// 200: applied, if the body says how the table looks now.
    Applied,
    /// 409: a requirement failed.
    Conflict,
    /// Another definite no.
    Refused,
    /// 429: not even looked at.
    TooMany,
    /// 401, 403, 419: not allowed; if the token is the reason, a fresh one helps.
    Token(Rejection),
    /// It may have been applied.
    Unknown,
}

/// The class of a status that answers a commit.
pub(super) fn commit_class(status: u16) -> CommitClass {
    match status {
        200 => CommitClass::Applied,
        409 => CommitClass::Conflict,
        429 => CommitClass::TooMany,
        401 | 419 => CommitClass::Token(Rejection::Token),
        403 => CommitClass::Token(Rejection::Right),
        400 | 404 | 405 | 406 | 410 | 411 | 413 | 415 | 422 | 501 => CommitClass::Refused,
        _ => CommitClass::Unknown,
    }
}

/// Whether reading may be tried again after this status.
pub(super) fn read_again(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Whether a fresh token may help: always where the catalog does not know who asks; where it does, only if the token is over.
pub(super) fn token_rejected(status: u16) -> Option<Rejection> {
    match status {
        401 | 419 => Some(Rejection::Token),
        403 => Some(Rejection::Right),
        _ => None,
    }
}

/// What a catalog rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    Token,
    /// What the token's owner wants to do (403). Some catalogs say so of a token that is over, too.
    Right,
}

/// Characters of what an error body says; the rest is cut off.
const SAID_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorBody {
    Iceberg { error: Model },
    OAuth { error: String, error_description: Option<String> },
}

#[derive(Deserialize)]
struct Model {
    message: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// The right that whoever asks lacks, if that is the error; what to grant is named by the request.
fn name_right(error: Error, operation: &str) -> Error {
    let right = match operation {
        "config" => "read the catalog's configuration",
        "list_namespaces" => "list namespaces",
        "list_tables" => "list the tables of this namespace",
        "load_table" => "read this table",
        "load_credentials" => "get credentials for this table's files",
        "commit_table" => "change this table",
        _ => "do this",
    };
    match error.kind() {
        ErrorKind::Forbidden => error.context(format_args!("the catalog's credential lacks the right to {right}")),
        _ => error,
    }
}

/// The type of error by which a 404 says that the very thing asked for does not exist. A 404 of another type is about
/// something else (a metadata file, another table, the warehouse), and one without a type may come from a wrong address.
fn missing_type(operation: &str) -> Option<&'static str> {
    match operation {
        "load_table" | "load_credentials" | "commit_table" => Some("NoSuchTableException"),
        "list_tables" | "list_namespaces" => Some("NoSuchNamespaceException"),
        _ => None,
    }
}

/// The error that an unsuccessful answer to an operation stands for, with the type and message that its body gives.
/// [`ErrorKind::NotFound`] only if the answer says so of the table, or of the namespace, that was asked for.
pub(super) fn error_of(operation: &str, status: u16, body: &[u8]) -> Error {
    let (said, kind_said) = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody::Iceberg { error }) => {
            let kind = error.kind.unwrap_or_default();
            (format!(" {kind}: {}", error.message.unwrap_or_default()), Some(kind))
        }
        Ok(ErrorBody::OAuth { error, error_description }) => {
            (format!(" {error}: {}", error_description.unwrap_or_default()), None)
        }
        Err(_) => {
            let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
            (if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }, None)
        }
    };
    let kind = match status {
        404 if kind_said.is_some() && kind_said.as_deref() == missing_type(operation) => ErrorKind::NotFound,
        // The catalog answers, and what it says of this table does not fit together.
        404 if kind_said.is_some() && missing_type(operation) == Some("NoSuchTableException") => ErrorKind::DataInvalid,
        403 => ErrorKind::Forbidden,
        409 => ErrorKind::Conflict,
        400 | 405 | 411 | 413 | 415 | 422 => ErrorKind::DataInvalid,
        406 | 501 => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    let said: String = said.chars().take(SAID_MAX).collect();
    name_right(Error::new(kind, format!("HTTP {status}{}", said.trim_end_matches([' ', ':']))), operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definite_answers_are_definite() {
        use CommitClass::*;
        let definite = [
            (200, Applied),
            (409, Conflict),
            (429, TooMany),
            (401, Token(Rejection::Token)),
            (403, Token(Rejection::Right)),
            (419, Token(Rejection::Token)),
            (400, Refused),
            (404, Refused),
            (405, Refused),
            (406, Refused),
            (410, Refused),
            (411, Refused),
            (413, Refused),
            (415, Refused),
            (422, Refused),
            (501, Refused),
        ];
        for status in 100..600 {
            let expected = definite.iter().find(|(s, _)| *s == status).map_or(Unknown, |(_, class)| *class);
            assert_eq!(commit_class(status), expected, "{status}");
        }
    }

    #[test]
    fn errors_say_type_and_message() {
        let body = br#"{"error":{"message":"no table t","type":"NoSuchTableException","code":404}}"#;
        let error = error_of("load_table", 404, body);
        assert_eq!(error.to_string(), "HTTP 404 NoSuchTableException: no table t");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = error_of("load_table", 404, b"<html>nothing here</html>");
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Unavailable, "HTTP 404: <html>nothing here</html>".into())
        );
        let error = error_of("token", 401, br#"{"error":"invalid_client","error_description":"who?"}"#);
        assert_eq!(error.to_string(), "HTTP 401 invalid_client: who?");
        let body = format!(r#"{{"error":{{"message":"{}","type":"T"}}}}"#, "ä".repeat(5_000));
        assert_eq!(
            error_of("load_table", 500, body.as_bytes()).to_string(),
            format!("HTTP 500 T: {}", "ä".repeat(996)),
            "cut off"
        );
        assert_eq!(error_of("load_table", 503, b"").to_string(), "HTTP 503");
        assert_eq!(error_of("load_table", 500, br#"{"error":{}}"#).to_string(), "HTTP 500");
        let error =
            error_of("load_table", 403, br#"{"error":{"message":"no","type":"ForbiddenException","code":403}}"#);
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        let text = "the catalog's credential lacks the right to read this table: HTTP 403 ForbiddenException: no";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn gone_is_only_what_the_answer_names_by_its_type() {
        let body = |kind: &str| format!(r#"{{"error":{{"message":"m","type":"{kind}","code":404}}}}"#);
        let kind = |operation, status, kind: &str| error_of(operation, status, body(kind).as_bytes()).kind();
        let (table, namespace) = ("NoSuchTableException", "NoSuchNamespaceException");
        for (operation, said, expected) in [
            ("load_table", table, ErrorKind::NotFound),
            ("load_table", namespace, ErrorKind::DataInvalid),
            ("load_table", "NotFoundException", ErrorKind::DataInvalid),
            ("load_table", "NoSuchIcebergTableException", ErrorKind::DataInvalid),
            ("load_table", "", ErrorKind::DataInvalid),
            ("load_credentials", table, ErrorKind::NotFound),
            ("list_tables", namespace, ErrorKind::NotFound),
            ("list_tables", table, ErrorKind::Unavailable),
            ("list_tables", "NoSuchWarehouseException", ErrorKind::Unavailable),
            ("list_namespaces", namespace, ErrorKind::NotFound),
            ("list_namespaces", "RESTException", ErrorKind::Unavailable),
            ("config", table, ErrorKind::Unavailable),
        ] {
            assert_eq!(kind(operation, 404, said), expected, "{operation} {said}");
            assert_eq!(kind(operation, 410, said), ErrorKind::Unavailable, "{operation} {said}");
        }
        for untyped in
            [&b""[..], b"{}", b"<html>", br#"{"error":{"message":"m"}}"#, br#"{"error":"NoSuchTableException"}"#]
        {
            assert_ne!(error_of("load_table", 404, untyped).kind(), ErrorKind::NotFound);
            assert_ne!(error_of("list_tables", 404, untyped).kind(), ErrorKind::NotFound);
        }
    }
}
