//! Names of namespaces and tables, as they travel in paths of requests and as they lie on disk.
//!
//! On disk a name becomes one path component of `[A-Za-z0-9_-]`, every other byte being `~XX`. Percent signs are
//! avoided because locations are URIs to some readers and plain paths to others; equals signs because some readers
//! take them for Hive partitions; dots because of `..` and of the catalog's own file names.

use std::fmt::Write as _;
use std::path::PathBuf;

use iceberg::{NamespaceIdent, TableIdent};

use super::problem::{CatalogError, CatalogResult};

/// Longest encoded name in bytes: leaves room for suffixes below the usual limit of 255 for a path component.
const ENCODED_NAME_BYTES_MAX: usize = 200;

/// Splits a namespace as it stands in a path or query: levels are separated by the unit separator.
pub(super) fn parse_namespace(text: &str) -> CatalogResult<NamespaceIdent> {
    namespace(text.split('\u{1f}').map(str::to_string).collect())
}

/// A namespace of checked levels.
pub(super) fn namespace(levels: Vec<String>) -> CatalogResult<NamespaceIdent> {
    for level in &levels {
        check_name(level)?;
    }
    NamespaceIdent::from_vec(levels).map_err(|_| CatalogError::bad_request("Namespace must have at least one level"))
}

/// A table identifier of checked names.
pub(super) fn table(namespace: NamespaceIdent, name: String) -> CatalogResult<TableIdent> {
    check_name(&name)?;
    Ok(TableIdent::new(namespace, name))
}

/// Checks the parts of an identifier that came as JSON.
pub(super) fn check_table(table: &TableIdent) -> CatalogResult<()> {
    table.namespace.iter().try_for_each(|level| check_name(level))?;
    check_name(&table.name)
}

fn check_name(name: &str) -> CatalogResult<()> {
    if name.is_empty() {
        return Err(CatalogError::bad_request("Names of namespaces and tables must not be empty"));
    }
    if name.contains('\u{1f}') {
        return Err(CatalogError::bad_request(format!("Name {name:?} holds the namespace separator")));
    }
    let length = encode(name).len();
    if length > ENCODED_NAME_BYTES_MAX {
        return Err(CatalogError::bad_request(format!(
            "Name {name:?} is too long: {length} bytes encoded, at most {ENCODED_NAME_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// A name as one path component.
pub(super) fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "~{byte:02X}");
        }
    }
    out
}

/// The name behind a path component; `None` if [`encode`] did not make it.
pub(super) fn decode(component: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(component.len());
    let mut rest = component.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'~' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode(&name) == component && !name.is_empty()).then_some(name)
}

/// The relative directory of a namespace.
pub(super) fn namespace_dir(namespace: &NamespaceIdent) -> PathBuf {
    namespace.iter().map(|level| encode(level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_to_disk_and_back() {
        for name in ["orders", "..", ".", "a/b", "a~b", "ünï", "x y", "100%", "a=b", "t.table"] {
            let component = encode(name);
            assert!(component.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-~".contains(&b)), "{component}");
            assert_eq!(decode(&component).as_deref(), Some(name));
        }
        assert_eq!(encode(".."), "~2E~2E");
    }

    #[test]
    fn components_that_no_name_makes_are_not_decoded() {
        for component in ["", "a.b", "a~", "a~4", "a~zz", "~61", "~2e"] {
            assert_eq!(decode(component), None, "{component}");
        }
    }

    #[test]
    fn levels_are_split_at_the_separator_and_checked() {
        let two = parse_namespace("a\u{1f}b.c").expect("two levels");
        assert_eq!(two.as_ref(), &vec!["a".to_string(), "b.c".to_string()]);
        assert!(parse_namespace("a\u{1f}").is_err());
        assert!(parse_namespace("").is_err());
        assert!(parse_namespace(&"x".repeat(201)).is_err());
    }
}
