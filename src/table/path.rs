//! Comparing and joining file paths. Pure.
//!
//! Two spellings of one file must compare equal, or a live file looks like garbage. The comparison key
//! ([`CanonicalPath`]) is made like this; the path itself is always passed on verbatim:
//!
//! - `s3`, `s3a` and `s3n` are one scheme; `file:/x`, `file:///x` and `/x` are one path.
//! - Scheme and authority compare without regard to case.
//! - Slashes in a row count as one, and slashes at the end as none. Object stores keep `a//b` and `a/b` apart;
//!   holding them equal can only spare garbage, never condemn a live file.
//! - Everything else is opaque: no percent decoding (writers put `%20` into names and mean these three characters),
//!   no Unicode normalisation, and `?` and `#` are ordinary.
//!
//! That two keys differ does not mean two files: links, mounts and aliases of buckets give one file several. Whoever deletes by
//! comparison must hold names and inodes against each other, too.
//!
//! What has no such key (relative paths, `.` and `..` segments, an odd authority) is an error:
//! whoever compares paths to delete files must then stop.

use std::fmt;

use crate::error::{Error, Result};

/// A path as it compares to others. The text form is `scheme://authority/key` with the parts normalised.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CanonicalPath {
    text: String,
    /// Where the key begins in `text`, after the slash.
    key_start: usize,
}

impl CanonicalPath {
    /// The comparison key of a file or directory. [`crate::error::ErrorKind::DataInvalid`] if it has none.
    pub fn parse(path: &str) -> Result<Self> {
        let parts = SplitPath::parse(path)?;
        let scheme = parts.canonical_scheme();
        let mut text = String::with_capacity(path.len() + 4);
        text.push_str(&scheme);
        text.push_str("://");
        text.push_str(&parts.authority.to_ascii_lowercase());
        text.push('/');
        let key_start = text.len();
        for segment in parts.key.split('/').filter(|s| !s.is_empty()) {
            if text.len() > key_start {
                text.push('/');
            }
            text.push_str(segment);
        }
        Ok(Self { text, key_start })
    }

    /// The whole key as text, for hashing and messages. Not a path to open.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Scheme in lower case, of its family: `s3` for all of S3, `file` for local paths.
    pub fn scheme(&self) -> &str {
        self.text.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// Bucket or host in lower case; empty for local paths.
    pub fn authority(&self) -> &str {
        &self.text[self.scheme().len() + 3..self.key_start - 1]
    }

    /// Whether this lies strictly inside the directory `dir`, by whole segments.
    pub fn is_inside(&self, dir: &Self) -> bool {
        let same_store = self.key_start == dir.key_start && self.text[..self.key_start] == dir.text[..dir.key_start];
        let (own, of_dir) = (&self.text[self.key_start..], &dir.text[dir.key_start..]);
        if !same_store || own.is_empty() {
            return false;
        }
        of_dir.is_empty() || own.strip_prefix(of_dir).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for CanonicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A path cut into its parts, each verbatim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SplitPath<'a> {
    /// Scheme as written; `file` for a plain absolute path.
    pub(crate) scheme: &'a str,
    /// Bucket or host as written; empty for local paths.
    pub(crate) authority: &'a str,
    /// What follows. Local: with the leading slash. Others: without the one slash that ends the authority.
    pub(crate) key: &'a str,
}

impl<'a> SplitPath<'a> {
    /// Cuts an absolute path up. The text of the key is not changed in any way.
    pub(crate) fn parse(path: &'a str) -> Result<Self> {
        let fail = |why: &str| Error::invalid(format!("path {path:?} {why}"));
        let parts = if path.starts_with('/') {
            Self { scheme: "file", authority: "", key: path }
        } else {
            let (scheme, rest) = split_scheme(path).ok_or_else(|| fail("is neither absolute nor has a scheme"))?;
            let (authority, key) = match rest.strip_prefix("//") {
                Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
                None => ("", rest),
            };
            if scheme.eq_ignore_ascii_case("file") {
                if !authority.is_empty() {
                    return Err(fail("names a host, but only local files can be opened"));
                }
                if !key.starts_with('/') {
                    return Err(fail("is not absolute"));
                }
                Self { scheme, authority, key }
            } else {
                let known = |c: char| c.is_ascii_alphanumeric() || "._-:@".contains(c);
                if authority.is_empty() || !authority.chars().all(known) {
                    return Err(fail("has no valid bucket or host"));
                }
                Self { scheme, authority, key: key.strip_prefix('/').unwrap_or(key) }
            }
        };
        if parts.key.split('/').any(|s| s == "." || s == "..") {
            return Err(fail("has a '.' or '..' segment, which stores resolve differently"));
        }
        if parts.key.contains('\0') {
            return Err(fail("contains a zero byte"));
        }
        Ok(parts)
    }

    /// The scheme's family (see [`FAMILIES`]), or the scheme itself in lower case.
    pub(crate) fn canonical_scheme(&self) -> String {
        let scheme = self.scheme.to_ascii_lowercase();
        family_of(&scheme).map_or(scheme, str::to_owned)
    }
}

/// URI schemes that lead to the same files, under the name of their family.
pub(crate) const FAMILIES: [(&str, &[&str]); 2] = [("s3", &["s3", "s3a", "s3n"]), ("file", &["file"])];

fn family_of(scheme: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|(_, schemes)| schemes.contains(&scheme)).map(|(family, _)| *family)
}

/// A path, or the beginning of one, with its family in place of its scheme; otherwise verbatim.
pub(crate) fn with_family(path: &str) -> String {
    let parts = path.split_once(':').and_then(|(scheme, rest)| Some((family_of(scheme)?, rest)));
    parts.map_or_else(|| path.to_owned(), |(family, rest)| format!("{family}:{rest}"))
}

fn split_scheme(path: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = path.split_once(':')?;
    let mut chars = scheme.chars();
    let valid = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-'));
    valid.then_some((scheme, rest))
}

/// Whether a path names a local file: `/x`, `file:/x` or `file:///x`.
pub fn is_local(path: &str) -> bool {
    path.starts_with('/') || path.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
}

/// Whether `path` lies strictly inside the directory `dir`, by whole segments and by comparison keys:
/// `db/t_2/f` is not inside `db/t`, with or without a slash at the end of either.
pub fn is_inside(dir: &str, path: &str) -> Result<bool> {
    Ok(CanonicalPath::parse(path)?.is_inside(&CanonicalPath::parse(dir)?))
}

/// `base/rest` with exactly one slash between them; both otherwise verbatim.
pub fn join(base: &str, rest: &str) -> String {
    format!("{}/{}", base.trim_end_matches('/'), rest.trim_start_matches('/'))
}

/// How the locations of two tables relate, if they share files at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    Equal,
    FirstInSecond,
    SecondInFirst,
}

/// Whether the directories of two tables are equal or nested; `None` if they have nothing to do with each other.
pub fn overlap(first: &str, second: &str) -> Result<Option<Overlap>> {
    let (first, second) = (CanonicalPath::parse(first)?, CanonicalPath::parse(second)?);
    Ok(if first == second {
        Some(Overlap::Equal)
    } else if first.is_inside(&second) {
        Some(Overlap::FirstInSecond)
    } else if second.is_inside(&first) {
        Some(Overlap::SecondInFirst)
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(path: &str) -> String {
        CanonicalPath::parse(path).map_or_else(|e| format!("error: {e}"), |p| p.text)
    }

    #[test]
    fn spellings_of_one_file_have_one_key() {
        for same in ["s3://Bkt/a/b", "s3a://bkt/a/b", "S3N://bkt/a//b", "s3://bkt//a/b", "s3://bkt/a/b/"] {
            assert_eq!(key(same), "s3://bkt/a/b", "{same}");
        }
        for same in ["/a/b", "file:/a/b", "file:///a/b", "FILE:///a//b/", "//a/b"] {
            assert_eq!(key(same), "file:///a/b", "{same}");
        }
        assert_eq!(key("hdfs://NN:8020/a"), "hdfs://nn:8020/a");
        assert_eq!(key("s3://bkt"), "s3://bkt/");
    }

    #[test]
    fn names_are_opaque() {
        let names = ["a b", "a%20b", "50%", "x#y", "x?y", "p+q", "k%3Av", "k:v", "\u{e9}", "e\u{301}", "A", "a", "…"];
        let keys: std::collections::HashSet<_> = names.iter().map(|n| key(&format!("s3://b/t/{n}"))).collect();
        assert_eq!(keys.len(), names.len(), "no two of these are one file: {keys:?}");
        assert_eq!(key("s3a://b/t/a%20b#c?d"), "s3://b/t/a%20b#c?d");
    }

    #[test]
    fn what_cannot_be_compared_is_an_error() {
        for bad in [
            "",
            "data/f",
            "s3:/b/k",
            "s3:///k",
            "s3://",
            "file:a",
            "file://host/a",
            "s3://b/../c",
            "/a/./b",
            "s3://b?x/k",
        ] {
            assert!(CanonicalPath::parse(bad).is_err(), "{bad}");
        }
        assert!(CanonicalPath::parse("/a/.../b").is_ok(), "three dots are a name");
    }

    #[test]
    fn inside_means_whole_segments() {
        for (dir, path, inside) in [
            ("s3://b/db/t", "s3a://b/db/t/f", true),
            ("s3://b/db/t/", "s3://b/db/t//f", true),
            ("s3://b/db/t", "s3://b/db/t_2/f", false),
            ("s3://b/db/t", "s3://b/db/t.bak/f", false),
            ("s3://b/db/t", "s3://b/db/t", false),
            ("s3://b/db/t", "s3://b/db/t/", false),
            ("s3://b/db/t", "s3://c/db/t/f", false),
            ("s3://b", "s3://b/x", true),
            ("/", "/x", true),
            ("/x", "file:///x/y", true),
            ("s3://b/x", "/b/x/y", false),
        ] {
            assert_eq!(is_inside(dir, path).unwrap(), inside, "{path} in {dir}");
        }
    }

    #[test]
    fn joining_gives_one_slash() {
        assert_eq!(join("s3://b/t/", "/data/f"), "s3://b/t/data/f");
        assert_eq!(join("s3://b/t", "data//f "), "s3://b/t/data//f ");
        assert_eq!(join("/", "f"), "/f");
        assert_eq!(join("file:///", "f"), "file:/f");
    }

    #[test]
    fn locations_of_two_tables() {
        assert_eq!(overlap("s3://b/t", "s3a://B/t/").unwrap(), Some(Overlap::Equal));
        assert_eq!(overlap("s3://b/t", "s3://b/t/d").unwrap(), Some(Overlap::SecondInFirst));
        assert_eq!(overlap("s3://b/t/d", "s3://b/t").unwrap(), Some(Overlap::FirstInSecond));
        assert_eq!(overlap("s3://b/t", "s3://b/t_2").unwrap(), None);
        assert!(overlap("s3://b/t", "t").is_err());
    }

    fn segment() -> impl Strategy<Value = String> {
        "[^/\0]{1,8}".prop_filter("dot segments are refused", |s| s != "." && s != "..")
    }

    proptest! {
        #[test]
        fn scheme_and_slashes_never_matter(segments in prop::collection::vec((segment(), 1..3usize), 1..5), end in 0..3usize) {
            let plain = segments.iter().map(|(s, _)| s.as_str()).collect::<Vec<_>>().join("/");
            let spread: String = segments.iter().map(|(s, n)| format!("{}{s}", "/".repeat(*n))).collect();
            let s3 = CanonicalPath::parse(&format!("s3://bkt/{plain}")).unwrap();
            let s3a = CanonicalPath::parse(&format!("s3a://BKT{spread}{}", "/".repeat(end))).unwrap();
            prop_assert_eq!(&s3, &s3a);
            prop_assert_eq!(s3.as_str(), format!("s3://bkt/{plain}"));
            prop_assert_eq!((s3.scheme(), s3.authority()), ("s3", "bkt"));
            let local = CanonicalPath::parse(&spread).unwrap();
            prop_assert_eq!(&local, &CanonicalPath::parse(&format!("file://{spread}")).unwrap());
            prop_assert_ne!(local, s3);
        }

        #[test]
        fn a_joined_path_is_inside_and_its_like_named_sibling_is_not(a in segment(), b in segment(), c in segment()) {
            let dir = format!("s3://bkt/{a}/{b}");
            prop_assert!(is_inside(&dir, &join(&dir, &c)).unwrap());
            prop_assert!(is_inside(&join(&dir, ""), &join(&dir, &c)).unwrap());
            let sibling = format!("{}{}", dir, c);
            prop_assert!(!is_inside(&dir, &sibling).unwrap());
            prop_assert!(!is_inside(&dir, &join(&sibling, "f")).unwrap());
            prop_assert!(!is_inside(&join(&dir, &c), &dir).unwrap());
        }

        #[test]
        fn different_names_have_different_keys(a in segment(), b in segment()) {
            let (first, second) = (key(&format!("s3://bkt/t/{a}")), key(&format!("s3://bkt/t/{b}")));
            prop_assert_eq!(a == b, first == second);
        }

        #[test]
        fn any_text_is_a_key_or_an_error(text in "\\PC{0,40}") {
            if let Ok(path) = CanonicalPath::parse(&text) {
                prop_assert_eq!(&CanonicalPath::parse(path.as_str()).unwrap(), &path, "keys are stable");
            }
        }
    }
}
