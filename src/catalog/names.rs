//! Names in request paths. Pure.

use iceberg::{NamespaceIdent, TableIdent};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Result};

/// Everything but RFC 3986's unreserved characters: a name is one segment, whatever it holds.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How the levels of a namespace are joined: the unit separator, unless the catalog says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Separator(String);

impl Default for Separator {
    fn default() -> Self {
        Self("\u{1f}".into())
    }
}

impl Separator {
    /// As the catalog's property `namespace-separator` has it: percent-encoded.
    pub(super) fn from_property(text: &str) -> Result<Self> {
        let decoded = percent_decode_str(text).decode_utf8();
        match decoded {
            Ok(text) if !text.is_empty() => Ok(Self(text.into_owned())),
            _ => Err(Error::invalid(format!("the catalog's namespace-separator {text:?} is not valid"))),
        }
    }

    /// A namespace as one path segment or one query value.
    pub(super) fn namespace(&self, namespace: &NamespaceIdent) -> Result<String> {
        let joined = namespace.as_ref().join(&self.0);
        if namespace.as_ref().iter().any(|level| level.contains(&self.0)) {
            return Err(Error::unsupported(format!(
                "namespace {joined:?} has the separator {:?} inside a name: it cannot be told apart from nested ones",
                self.0
            )));
        }
        segment(&joined)
    }

    /// A table's path below the catalog's prefix.
    pub(super) fn table(&self, table: &TableIdent) -> Result<String> {
        Ok(format!("namespaces/{}/tables/{}", self.namespace(table.namespace())?, segment(table.name())?))
    }
}

fn segment(name: &str) -> Result<String> {
    if matches!(name, "" | "." | "..") {
        return Err(Error::unsupported(format!("the name {name:?} cannot be part of a request path")));
    }
    Ok(encode(name))
}

/// Encodes text for a path segment or a query value.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(levels: &[&str], name: &str) -> TableIdent {
        TableIdent::new(NamespaceIdent::from_strs(levels).unwrap(), name.into())
    }

    #[test]
    fn names_are_encoded_once_and_whole() {
        let separator = Separator::default();
        let odd = table(&["a b", "c/d"], "t x/y?z%41#h+é");
        assert_eq!(separator.table(&odd).unwrap(), "namespaces/a%20b%1Fc%2Fd/tables/t%20x%2Fy%3Fz%2541%23h%2B%C3%A9");
        assert_eq!(separator.table(&table(&["a.b"], "c-d_e~f.g")).unwrap(), "namespaces/a.b/tables/c-d_e~f.g");
    }

    #[test]
    fn another_separator_is_honoured() {
        let dot = Separator::from_property("%2E").unwrap();
        assert_eq!(dot.namespace(table(&["a", "b"], "t").namespace()).unwrap(), "a.b");
        assert!(dot.namespace(table(&["a.b"], "t").namespace()).is_err(), "would be read as two levels");
        assert!(Separator::from_property("").is_err());
        assert!(Separator::from_property("%FF").is_err());
    }

    #[test]
    fn names_that_paths_swallow_are_refused() {
        for name in [".", "..", ""] {
            assert!(Separator::default().table(&table(&["a"], name)).is_err(), "{name:?}");
        }
    }
}
