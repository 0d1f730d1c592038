//! The project's source files, read as text.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A source file: its path from the root, and its text.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// Whether the whole file is compiled for tests only.
    pub(super) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs" || name.ends_with("_tests.rs") || self.path.contains("/tests/")
    }

    /// Numbered lines without comments, up to the tests at the end.
    pub(super) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let code = self.text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
        (1..).zip(code)
    }

    /// How many `super::` lead from the file's module to the root.
    pub(super) fn depth(&self) -> usize {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split('/').filter(|part| *part != "mod.rs").count()
    }

    /// The module of `src` that it belongs to.
    pub(super) fn module(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split(['/', '.']).next().unwrap_or_default()
    }
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn sources(dir: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(root().join(&dir)).expect("a readable folder") {
            let entry = entry.expect("a readable entry");
            let path = dir.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(root().join(&path)).expect("readable source");
                found.push(Source { path: path.to_str().expect("plain names").to_owned(), text });
            }
        }
    }
    assert!(found.len() > 5, "{dir} has source files");
    found
}

/// `path:line: text` of every line of code that holds one of `words`, outside the `allowed` files and folders.
pub(super) fn uses_outside(words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources("src").iter().filter(|s| !s.is_test()) {
        for (number, line) in source.code().filter(|(_, line)| words.iter().any(|word| line.contains(word))) {
            match allowed.iter().find(|place| source.path.starts_with(**place)) {
                Some(place) => drop(seen.insert(*place)),
                None => found.push(format!("{}:{number}: {}", source.path, line.trim())),
            }
        }
    }
    assert_eq!(seen.len(), allowed.len(), "each place that may use {words:?} does: {seen:?} of {allowed:?}");
    found
}
