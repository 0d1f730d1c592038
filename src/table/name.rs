//! How tables are named in the configuration, on the command line, in logs and in labels.
//!
//! Levels are joined by dots: `catalog.namespace.table`, where a namespace may have several levels. A level, or part of
//! one, that holds a dot or another special character stands in double quotes, where `""` means one quote:
//! `lake."web.logs".events`.

use std::fmt;
use std::str::FromStr;

use iceberg::TableIdent;

use crate::error::{Error, ErrorKind, Result};

/// Characters that mean something, or might come to, outside quotes.
const SPECIAL: &str = ".\"*?[]{}";

/// A piece of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PatternToken {
    Char(char),
    /// An unquoted `*`.
    Star,
}

/// Splits a dotted text into levels of tokens. Errors say what is wrong, not where.
pub(crate) fn split_levels(text: &str) -> Result<Vec<Vec<PatternToken>>, String> {
    let mut levels = Vec::new();
    let mut level = Vec::new();
    let mut quoted_empty = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                quoted_empty = true;
                loop {
                    match chars.next() {
                        Some('"') if chars.peek() == Some(&'"') => {
                            chars.next();
                            level.push(PatternToken::Char('"'));
                        }
                        Some('"') => break,
                        Some(inner) => level.push(PatternToken::Char(inner)),
                        None => return Err("a quote is not closed".into()),
                    }
                }
            }
            '.' => {
                if level.is_empty() && !quoted_empty {
                    return Err("a level is empty".into());
                }
                levels.push(std::mem::take(&mut level));
                quoted_empty = false;
            }
            '*' => level.push(PatternToken::Star),
            c if SPECIAL.contains(c) => {
                return Err(format!("`{c}` is not a wildcard (only `*` and `**` are); quote the level to mean itself"));
            }
            c => level.push(PatternToken::Char(c)),
        }
    }
    if level.is_empty() && !quoted_empty {
        return Err("a level is empty".into());
    }
    levels.push(level);
    Ok(levels)
}

/// The full name of a table: catalog (by its name in the configuration), namespace levels, table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// Name of the catalog in the configuration.
    pub catalog: String,
    /// Namespace levels, outermost first; at least one.
    pub namespace: Vec<String>,
    pub table: String,
}

impl TableName {
    /// The name of `ident` in the catalog configured as `catalog`.
    pub fn new(catalog: impl Into<String>, ident: &TableIdent) -> Self {
        Self { catalog: catalog.into(), namespace: ident.namespace().as_ref().clone(), table: ident.name().to_owned() }
    }

    /// All levels, outermost first.
    pub fn levels(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(self.catalog.as_str())
            .chain(self.namespace.iter().map(String::as_str))
            .chain(std::iter::once(self.table.as_str()))
    }

    /// The namespace as one text, quoted where needed: a label value.
    pub fn namespace_text(&self) -> String {
        self.namespace.iter().map(|level| quote(level)).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, level) in self.levels().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            f.write_str(&quote(level))?;
        }
        Ok(())
    }
}

impl FromStr for TableName {
    type Err = Error;

    /// Reads `catalog.namespace.table` without wildcards. [`ErrorKind::Config`] if it is none.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::Config, format!("`{text}` is no table name ({what}): write catalog.namespace.table"))
        };
        let mut levels = Vec::new();
        for tokens in split_levels(text).map_err(|e| wrong(&e))? {
            let mut level = String::new();
            for token in tokens {
                match token {
                    PatternToken::Char(c) => level.push(c),
                    PatternToken::Star => return Err(wrong("`*` stands for many")),
                }
            }
            levels.push(level);
        }
        if levels.len() < 3 {
            return Err(wrong("fewer than three levels"));
        }
        let table = levels.pop().ok_or_else(|| wrong("no table"))?;
        let catalog = levels.remove(0);
        Ok(Self { catalog, namespace: levels, table })
    }
}

/// A level as it has to be written.
fn quote(level: &str) -> String {
    if level.is_empty() || level.contains(|c: char| SPECIAL.contains(c)) {
        format!("\"{}\"", level.replace('"', "\"\""))
    } else {
        level.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{MemoryCatalog, MemoryStore};

    #[test]
    fn names_with_dots_and_quotes_are_written_so_that_they_read_back() {
        let name: TableName = "lake.\"web.logs\".a.events".parse().expect("a name");
        assert_eq!((name.catalog.as_str(), name.table.as_str()), ("lake", "events"));
        assert_eq!(name.namespace, ["web.logs", "a"]);
        assert_eq!(name.to_string(), "lake.\"web.logs\".a.events");
        assert_eq!(name.namespace_text(), "\"web.logs\".a");
    }

    #[tokio::test]
    async fn a_handle_has_the_same_name() {
        let ident = TableIdent::from_strs(["web.logs", "events"]).expect("a name");
        let store = std::sync::Arc::new(MemoryStore::new());
        let catalog = MemoryCatalog::new(store.clone());
        catalog.create(&ident, serde_json::json!({})).expect("valid");
        let handle = catalog.handle(&ident, store).await.expect("there");
        assert_eq!(handle.name(), "lake.\"web.logs\".events");
        assert_eq!(handle.name().parse::<TableName>().expect("a name"), TableName::new("lake", &ident));
    }

    #[test]
    fn what_is_no_table_name_is_refused_with_the_reason() {
        for (text, why) in [
            ("lake.events", "fewer than three levels"),
            ("lake..events", "a level is empty"),
            ("lake.db.", "a level is empty"),
            ("", "a level is empty"),
            ("lake.db.*", "`*` stands for many"),
            ("lake.\"db.t", "a quote is not closed"),
            ("lake.d[b].t", "`[` is not a wildcard"),
        ] {
            let error = text.parse::<TableName>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_name_reads_back(levels in prop::collection::vec("[a-z.\"*? \\[{é]{0,6}", 3..6)) {
            let name = TableName {
                catalog: levels[0].clone(),
                namespace: levels[1..levels.len() - 1].to_vec(),
                table: levels[levels.len() - 1].clone(),
            };
            prop_assert_eq!(name.to_string().parse::<TableName>().expect("own text"), name);
        }
    }
}
