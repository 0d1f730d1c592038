//! Files counted by their size, in buckets that are the same for every table, so that histograms of tables add up.

use serde::{Serialize, Serializer};

const MIB: u64 = 1 << 20;

/// Upper bounds of the buckets in bytes, each belonging to its bucket; one more bucket takes what is larger.
pub const SIZE_BOUNDS: [u64; 11] =
    [MIB, 4 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB, 192 * MIB, 256 * MIB, 384 * MIB, 512 * MIB, 1024 * MIB];

/// Files by size. Serialised as a list of [`SizeBucket`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SizeHistogram {
    /// Number and bytes of the files in each bucket, smallest first.
    counts: [(u64, u64); SIZE_BOUNDS.len() + 1],
}

/// The files that are larger than the bound of the bucket before, up to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SizeBucket {
    /// Size of the largest file that belongs here, in bytes; `None`: no bound.
    #[schema(required)]
    pub le_bytes: Option<u64>,
    /// Files in this bucket alone.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl SizeHistogram {
    /// Counts a file of this many bytes.
    pub fn add(&mut self, bytes: u64) {
        let bucket = SIZE_BOUNDS.partition_point(|bound| *bound < bytes);
        let (files, sum) = &mut self.counts[bucket];
        *files += 1;
        *sum = sum.saturating_add(bytes);
    }

    /// All buckets, those of small files first, also empty ones.
    pub fn buckets(&self) -> impl Iterator<Item = SizeBucket> {
        let bounds = SIZE_BOUNDS.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts).map(|(le_bytes, (files, bytes))| SizeBucket { le_bytes, files, bytes })
    }
}

impl Serialize for SizeHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_and_bounds_belong_to_their_bucket() {
        let mut histogram = SizeHistogram::default();
        for bytes in [0, MIB, MIB + 1, 300 * MIB, 1 << 30, (1 << 30) + 1, u64::MAX] {
            histogram.add(bytes);
        }
        let filled: Vec<_> = histogram.buckets().filter(|bucket| bucket.files > 0).collect();
        let bucket = |le_bytes, files, bytes| SizeBucket { le_bytes, files, bytes };
        let wanted = [
            bucket(Some(MIB), 2, MIB),
            bucket(Some(4 * MIB), 1, MIB + 1),
            bucket(Some(384 * MIB), 1, 300 * MIB),
            bucket(Some(1 << 30), 1, 1 << 30),
            bucket(None, 2, u64::MAX),
        ];
        assert_eq!(filled, wanted);
        assert_eq!(histogram.buckets().count(), 12);
    }

    #[test]
    fn it_is_written_as_a_list() {
        let json = serde_json::to_value(SizeHistogram::default()).expect("JSON");
        assert_eq!(json[0], serde_json::json!({"le-bytes": MIB, "files": 0, "bytes": 0}));
        assert_eq!(json[11]["le-bytes"], serde_json::Value::Null);
    }
}
