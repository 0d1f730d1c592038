//! What a store tells of a file.

/// A file found by listing, or looked up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedFile {
    /// Absolute path with the scheme and spelling of the listed prefix.
    pub path: String,
    pub size: u64,
    /// Last modification, milliseconds since the epoch, if the store told one.
    pub last_modified_ms: Option<i64>,
}

/// What a local file is, whatever path leads to it: links and mounts give one file several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    /// Hard links to it: with more than one, the file outlives the deletion of one of its paths.
    pub hard_links: u64,
}
