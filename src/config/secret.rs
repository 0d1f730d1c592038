//! Secrets: named in the configuration, read from their source only when they are needed.

use std::fmt;
use std::io::Read;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};

/// Bytes of a secret at most.
const MAX_BYTES: u64 = 64 * 1024;

/// Where a secret lies. Reading it anew each time lets rotated files take effect.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// An environment variable.
    Env(String),
    /// A file; a line break at its end does not count.
    File(PathBuf),
}

/// A secret's text, which no formatting shows.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl Secret {
    /// Reads the secret. [`ErrorKind::Config`] if it is missing, empty, not UTF-8 or longer than 64 KiB; the message
    /// names the source, never the content.
    pub fn resolve(&self) -> Result<SecretText> {
        let wrong = |what: String| Error::new(ErrorKind::Config, format!("secret from {self}: {what}"));
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|e| match e {
                std::env::VarError::NotPresent => wrong("the variable is not set".into()),
                std::env::VarError::NotUnicode(_) => wrong("the value is not UTF-8".into()),
            })?,
            Self::File(path) => {
                let file = std::fs::File::open(path).map_err(|e| wrong(e.to_string()))?;
                let mut bytes = Vec::new();
                file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
                let text = String::from_utf8(bytes).map_err(|_| wrong("the content is not UTF-8".into()))?;
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
        };
        if text.is_empty() {
            return Err(wrong("it is empty".into()));
        }
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(format!("it is longer than {MAX_BYTES} bytes")));
        }
        Ok(SecretText(text))
    }
}

impl SecretText {
    /// The text itself: only for the request that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time_and_never_shown() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("token");
        std::fs::write(&path, "first\n").expect("write");
        let secret = Secret::File(path.clone());
        assert_eq!(secret.resolve().expect("read").expose(), "first");
        std::fs::write(&path, "second").expect("write");
        let text = secret.resolve().expect("read");
        assert_eq!(text.expose(), "second");
        assert!(!format!("{text:?} {secret:?} {secret}").contains("second"));
    }

    #[test]
    fn unusable_secrets_name_their_source_and_not_their_content() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("token");
        let message = || Secret::File(path.clone()).resolve().expect_err("unusable").to_string();
        assert!(message().contains("token"), "missing");
        std::fs::write(&path, "\n").expect("write");
        assert!(message().contains("empty"));
        std::fs::write(&path, [b'a', 0xff]).expect("write");
        assert!(message().contains("not UTF-8"));
        std::fs::write(&path, "k".repeat(70_000)).expect("write");
        assert!(message().contains("longer than 65536 bytes") && !message().contains("kk"));
        let unset = Secret::Env("ICEWRIGHT_TEST_SURELY_UNSET".into()).resolve().expect_err("unset");
        assert_eq!(
            unset.to_string(),
            "secret from environment variable ICEWRIGHT_TEST_SURELY_UNSET: the variable is not set"
        );
    }
}
