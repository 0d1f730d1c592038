//! What is told to the metrics.

/// Whether failures keep a table waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Failed runs since the last one that did not fail.
    pub consecutive_failures: u32,
    /// When it is tried again, milliseconds since the epoch; `None`: it is not waiting.
    pub until_ms: Option<i64>,
    /// Not compacted until its metadata changes.
    pub quarantined: bool,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What rewrites may take together.
    pub budget: u64,
    /// What running rewrites have reserved.
    pub reserved: u64,
    /// What summaries of manifests take.
    pub manifest_cache: u64,
}
