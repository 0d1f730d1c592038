//! One error type. Its kind says what the caller should do, its text what happened and where.

use std::fmt;

/// What to do about an error; matched without a wildcard where reactions are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The configuration is wrong: fix it, nothing was started.
    Config,
    /// A catalog or store did not answer properly: back off and try again.
    Unavailable,
    /// A catalog knows who asks and does not allow it: grant the right; asking again does not help.
    Forbidden,
    /// The thing asked for does not exist (table, file).
    NotFound,
    /// Somebody else changed the table: refresh and plan again.
    Conflict,
    /// A commit may or may not have happened and could not be settled: delete nothing.
    CommitUnknown,
    /// The work does not fit the memory budget: defer or split it.
    OutOfMemory,
    /// The table uses something this version does not handle: leave it alone and say so.
    Unsupported,
    /// Metadata or data contradicts the specification: leave the table until it changes.
    DataInvalid,
    /// The run was told to stop.
    Cancelled,
    /// A bug of ours.
    Internal,
}

impl ErrorKind {
    pub const ALL: [Self; 11] = [
        Self::Config,
        Self::Unavailable,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::CommitUnknown,
        Self::OutOfMemory,
        Self::Unsupported,
        Self::DataInvalid,
        Self::Cancelled,
        Self::Internal,
    ];

    /// A stable name for labels and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Unavailable => "unavailable",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::CommitUnknown => "commit_unknown",
            Self::OutOfMemory => "out_of_memory",
            Self::Unsupported => "unsupported",
            Self::DataInvalid => "data_invalid",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

/// An error with its kind and a chain of what was being done, outermost first.
///
/// Each place is named by one link only: a file by the store that was asked for it, or by whoever reads its format; an address
/// by the catalog's client; a table by [`crate::catalog::TableHandle`] and the fleet. Whoever passes such an error on adds what
/// the place does not tell.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A new error; `message` is lower case without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::DataInvalid, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// A catalog or store did not answer properly.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// A bug of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error, saying what was being done: a bare verb phrase, such as `read manifest s3://b/m.avro`.
    #[must_use]
    pub fn context(self, doing: impl fmt::Display) -> Self {
        Self { kind: self.kind, message: format!("{doing}: {}", self.message) }
    }

    /// The same error, saying what was being done to which file; for causes of which some name the file and some do not:
    /// stores name it always, Parquet never. It is named once.
    #[must_use]
    pub fn context_of(self, doing: &str, place: &str) -> Self {
        if self.message.contains(place) { self.context(doing) } else { self.context(format_args!("{doing} {place}")) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Adds context to a result's error.
pub trait Context<T> {
    /// See [`Error::context`]; the phrase is made only on failure.
    fn context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context<D: fmt::Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|e| e.into().context(doing()))
    }
}

impl From<iceberg::Error> for Error {
    fn from(e: iceberg::Error) -> Self {
        let kind = match e.kind() {
            iceberg::ErrorKind::FeatureUnsupported => ErrorKind::Unsupported,
            iceberg::ErrorKind::TableNotFound | iceberg::ErrorKind::NamespaceNotFound => ErrorKind::NotFound,
            _ => ErrorKind::DataInvalid,
        };
        Self::new(kind, e.to_string())
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(e: parquet::errors::ParquetError) -> Self {
        Self::invalid(e.to_string())
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(e: arrow::error::ArrowError) -> Self {
        Self::invalid(e.to_string())
    }
}

impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Self {
        Self::invalid(format!("malformed JSON: {e}"))
    }
}
