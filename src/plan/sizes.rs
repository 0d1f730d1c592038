//! Sizes of files: what is left alone, and what comes out. Formulas are the reference's, down to its rounding, but for what
//! keeps a run's result from being taken up again.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::policy::RewriteDataFilesPolicy;

/// Table property with the target size.
const TARGET_PROPERTY: &str = "write.target-file-size-bytes";
const DEFAULT_TARGET_BYTES: u64 = 512 << 20;
/// What the reference adds to a split, so that rounding down does not leave a tiny last one.
const SPLIT_OVERHEAD_BYTES: u64 = 5 << 10;
/// Of the target: less than what the writer fills its files to (`rewrite/filling.rs`).
const FULL_RATIO: f64 = 0.7;
/// Of the target: what gives two files of at least three quarters.
const SPLIT_RATIO: f64 = 1.5;

/// Target, minimum and maximum size of a data file in bytes; `min < target < max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// What a new file should have.
    pub target_bytes: u64,
    /// A smaller file is a candidate.
    pub min_bytes: u64,
    /// A larger file is a candidate.
    pub max_bytes: u64,
}

impl Sizes {
    /// Merges the policy with the table's properties and the defaults (0.75 and 1.8 of the target, truncated).
    ///
    /// [`ErrorKind::Config`] if they contradict each other, naming both values and their origins.
    pub fn resolve(policy: &RewriteDataFilesPolicy, properties: &HashMap<String, String>) -> Result<Self> {
        let (target, target_origin) = match (policy.target_file_size_bytes, properties.get(TARGET_PROPERTY)) {
            (Some(bytes), _) => (bytes, "the policy".to_string()),
            (None, Some(text)) => (parse_property(text)?, format!("table property {TARGET_PROPERTY}")),
            (None, None) => (DEFAULT_TARGET_BYTES, "the default".to_string()),
        };
        let derived = |set: Option<u64>, ratio: f64| match set {
            Some(bytes) => (bytes, "the policy".to_string()),
            None => ((target as f64 * ratio) as u64, format!("{ratio} of the target")),
        };
        let (min, min_origin) = derived(policy.min_file_size_bytes, 0.75);
        let (max, max_origin) = derived(policy.max_file_size_bytes, 1.8);
        let wrong = |relation: &str, other: &str, other_bytes: u64, other_origin: &str| {
            Error::new(
                ErrorKind::Config,
                format!(
                    "target-file-size {target} ({target_origin}) must be {relation} {other} {other_bytes} \
                     ({other_origin}); set both in [rewrite-data-files] of the policy"
                ),
            )
        };
        if min >= target {
            return Err(wrong("greater than", "min-file-size", min, &min_origin));
        }
        if max <= target {
            return Err(wrong("less than", "max-file-size", max, &max_origin));
        }
        Ok(Self { target_bytes: target, min_bytes: min, max_bytes: max })
    }

    /// Whether a file is as full as a rewrite makes all its outputs but the last of each partition. Where `min-file-size` is
    /// closer to the target than a writer can come, a smaller file is full as well.
    pub fn is_full(&self, bytes: u64) -> bool {
        bytes >= self.min_bytes.min((self.target_bytes as f64 * FULL_RATIO) as u64)
    }

    /// How many full files so many bytes fill at most.
    pub fn full_files_at_most(&self, bytes: u64) -> u64 {
        bytes / ((self.target_bytes as f64 * FULL_RATIO) as u64).max(1)
    }

    /// Whether a split of a file of this size would make files of about the target, rather than small ones.
    pub fn can_be_split(&self, bytes: u64) -> bool {
        bytes > self.max_bytes && bytes as f64 >= self.target_bytes as f64 * SPLIT_RATIO
    }

    /// An output file is closed before it grows past this: half-way between target and maximum.
    pub fn write_max_bytes(&self) -> u64 {
        (self.target_bytes as f64 + (self.max_bytes - self.target_bytes) as f64 * 0.5) as u64
    }

    /// How many files should come out of so many input bytes. A remainder above the minimum size has its own file; a
    /// smaller one is spread over the others if that makes them at most a tenth larger than the target.
    pub fn expected_output_files(&self, input_bytes: u64) -> u64 {
        if input_bytes < self.target_bytes {
            return 1;
        }
        let down = input_bytes / self.target_bytes;
        let up = input_bytes.div_ceil(self.target_bytes);
        if input_bytes % self.target_bytes > self.min_bytes {
            return up;
        }
        let spread = (input_bytes / down) as f64;
        if spread < (1.1 * self.target_bytes as f64).min(self.write_max_bytes() as f64) { down } else { up }
    }

    /// Target size of one output file for so many input bytes: at least the target, at most [`Self::write_max_bytes`].
    pub fn input_split_size_bytes(&self, input_bytes: u64) -> u64 {
        let even = (input_bytes / self.expected_output_files(input_bytes)).saturating_add(SPLIT_OVERHEAD_BYTES);
        if even < self.target_bytes { self.target_bytes } else { even.min(self.write_max_bytes()) }
    }
}

fn parse_property(text: &str) -> Result<u64> {
    text.trim().parse::<u64>().ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
        Error::new(
            ErrorKind::Config,
            format!(
                "table property {TARGET_PROPERTY} is {text:?}, not a positive number of bytes; \
                 correct it or set target-file-size in the policy"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(target: u64, min: u64, max: u64) -> Sizes {
        Sizes { target_bytes: target, min_bytes: min, max_bytes: max }
    }

    #[test]
    fn defaults_come_from_the_property_then_from_512_mib() {
        let policy = RewriteDataFilesPolicy::default();
        let resolved = Sizes::resolve(&policy, &HashMap::new()).expect("valid");
        assert_eq!(resolved, sizes(536_870_912, 402_653_184, 966_367_641));
        assert_eq!(resolved.write_max_bytes(), 751_619_276);
        let property = HashMap::from([(TARGET_PROPERTY.to_string(), "1001".to_string())]);
        assert_eq!(Sizes::resolve(&policy, &property).expect("valid"), sizes(1001, 750, 1801));
        let own = RewriteDataFilesPolicy { target_file_size_bytes: Some(10), ..policy };
        assert_eq!(Sizes::resolve(&own, &property).expect("valid"), sizes(10, 7, 18));
    }

    #[test]
    fn contradictions_name_both_values_and_origins() {
        let property = HashMap::from([(TARGET_PROPERTY.to_string(), "100".to_string())]);
        let policy = RewriteDataFilesPolicy { min_file_size_bytes: Some(100), ..Default::default() };
        let error = Sizes::resolve(&policy, &property).expect_err("min = target");
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains("target-file-size 100 (table property write.target-file-size-bytes)"), "{text}");
        assert!(text.contains("min-file-size 100 (the policy)"), "{text}");
        let policy = RewriteDataFilesPolicy { max_file_size_bytes: Some(50), ..Default::default() };
        let text = Sizes::resolve(&policy, &HashMap::new()).expect_err("max < target").to_string();
        assert!(text.contains("536870912 (the default) must be less than max-file-size 50 (the policy)"), "{text}");
        // A target of zero can never exceed the minimum.
        let policy = RewriteDataFilesPolicy { target_file_size_bytes: Some(0), ..Default::default() };
        assert!(Sizes::resolve(&policy, &HashMap::new()).is_err());
        let broken = HashMap::from([(TARGET_PROPERTY.to_string(), "512MB".to_string())]);
        let text = Sizes::resolve(&RewriteDataFilesPolicy::default(), &broken).expect_err("unit").to_string();
        assert!(text.contains("\"512MB\""), "{text}");
    }

    #[test]
    fn a_split_leaves_no_small_files() {
        let s = sizes(100, 75, 180);
        assert_eq!([180, 181].map(|bytes| s.can_be_split(bytes)), [false, true]);
        // A maximum close to the target: half of what is a little above it would be small.
        let narrow = sizes(100, 99, 101);
        assert_eq!([102, 149, 150].map(|bytes| narrow.can_be_split(bytes)), [false, false, true]);
    }

    #[test]
    fn a_file_is_full_at_the_minimum_or_where_the_writer_comes_to() {
        assert_eq!([49, 50].map(|bytes| sizes(100, 50, 180).is_full(bytes)), [false, true]);
        assert_eq!([69, 70].map(|bytes| sizes(100, 99, 101).is_full(bytes)), [false, true]);
        assert_eq!(sizes(100, 99, 101).full_files_at_most(141), 2);
    }

    #[test]
    fn output_files_follow_the_remainder() {
        let s = sizes(100, 75, 180);
        assert_eq!(s.write_max_bytes(), 140);
        for (input, files) in [
            (0, 1),
            (99, 1),
            (100, 1),
            // Spread over one file; 1.1 x 100 is a little above 110 in binary, as in the reference.
            (109, 1),
            (110, 1),
            (111, 2),
            (175, 2),
            (176, 2),
            (200, 2),
            // 221 / 2 = 110 after truncation.
            (221, 2),
            (222, 3),
            (275, 3),
            (276, 3),
            (1060, 10),
            (1090, 11),
            (1100, 11),
        ] {
            assert_eq!(s.expected_output_files(input), files, "{input}");
        }
        // A maximum close to the target bounds the spread before the tenth does: 104 / 1 is not below 102.
        assert_eq!(sizes(100, 75, 105).expected_output_files(104), 2);
    }

    #[test]
    fn split_size_lies_between_target_and_write_max() {
        let s = sizes(100 * MIB, 75 * MIB, 180 * MIB);
        assert_eq!(s.input_split_size_bytes(30 * MIB), 100 * MIB);
        assert_eq!(s.input_split_size_bytes(130 * MIB), 100 * MIB);
        assert_eq!(s.input_split_size_bytes(216 * MIB), 108 * MIB + 5120);
        let narrow = sizes(100, 75, 180);
        assert_eq!(narrow.input_split_size_bytes(200), 140);
    }

    #[test]
    fn scenario_12_split_large_and_combine_medium() {
        let s = sizes(100, 75, 180);
        assert_eq!(s.expected_output_files(200), 2);
        // Four files of three quarters of a target that is a third of their sum.
        assert_eq!(s.expected_output_files(300), 3);
    }
}
