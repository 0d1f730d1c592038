//! Sets of paths that take 16 bytes a path, for tables of tens of millions of files. Pure.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashSet;

use crate::error::Result;
use crate::table::path::CanonicalPath;

const SEEDS: [u64; 2] = [0x6963_6562_6572_6731, 0x6963_6562_6572_6732];

/// 128 bits that stand for a text. Whoever uses it must only lose tidiness, never a file, if two texts share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u64; 2]);

impl Fingerprint {
    /// The fingerprint of a text as it stands.
    pub fn of_text(text: &str) -> Self {
        Self(SEEDS.map(|seed| FixedState::with_seed(seed).hash_one(text)))
    }

    /// The fingerprint of a file, the same for all spellings of its path.
    /// [`crate::error::ErrorKind::DataInvalid`] if the path has no comparison key.
    pub fn of_path(path: &str) -> Result<Self> {
        Ok(Self::of_text(CanonicalPath::parse(path)?.as_str()))
    }
}

/// A set of files. Membership may be claimed wrongly with a probability below n^2 / 2^128, never denied wrongly:
/// so it says which files to spare.
#[derive(Debug, Clone, Default)]
pub struct PathSet(HashSet<Fingerprint, FixedState>);

impl PathSet {
    /// Adds a file; whether it is new.
    pub fn insert(&mut self, path: &str) -> Result<bool> {
        Ok(self.0.insert(Fingerprint::of_path(path)?))
    }

    /// Adds a fingerprint; whether it is new.
    pub fn insert_fingerprint(&mut self, fingerprint: Fingerprint) -> bool {
        self.0.insert(fingerprint)
    }

    pub fn contains(&self, path: &str) -> Result<bool> {
        Ok(self.0.contains(&Fingerprint::of_path(path)?))
    }

    pub fn contains_fingerprint(&self, fingerprint: Fingerprint) -> bool {
        self.0.contains(&fingerprint)
    }

    /// All fingerprints, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Fingerprint> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_file_are_one_member() {
        let mut set = PathSet::default();
        assert!(set.insert("s3a://b/t/data/f 1%20.parquet").expect("valid path"));
        assert!(!set.insert("s3://b/t//data/f 1%20.parquet").expect("valid path"));
        assert!(set.contains("s3n://b/t/data/f 1%20.parquet").expect("valid path"));
        assert!(!set.contains("s3://b/t/data/f 1 .parquet").expect("valid path"));
        assert_eq!(set.len(), 1);
        assert!(set.contains("data/f").is_err(), "a path without a comparison key stops whoever compares");
    }

    #[test]
    fn a_million_paths_stay_apart() {
        let mut set = PathSet::default();
        for i in 0..1_000_000 {
            set.insert_fingerprint(Fingerprint::of_text(&format!("s3://b/t/data/{i:07}.parquet")));
        }
        assert_eq!(set.len(), 1_000_000);
    }
}
