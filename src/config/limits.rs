//! How much memory the process may use where the configuration does not say.

use std::path::{Path, PathBuf};

/// The budget where no limit is set for the process.
pub const MEMORY_FALLBACK_BYTES: u64 = 4 << 30;

/// Less would not hold one row group of small files while it is written.
pub(super) const MEMORY_MIN_BYTES: u64 = 64 << 20;

/// With this a file group of small files fits with one thread, where its outputs reach the usual row group size of 128 MiB: it
/// needs 432 MiB, and a sixteenth of the whole is for summaries of manifests.
pub const USUAL_MEMORY_BYTES: u64 = 461 << 20;

/// 80 % of the smallest cgroup v2 memory limit that holds for this process, else [`MEMORY_FALLBACK_BYTES`].
pub fn detect_memory_bytes() -> u64 {
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    budget_below(Path::new("/sys/fs/cgroup"), &group)
}

/// `cgroups` is the content of `/proc/self/cgroup`; version 2 is the line `0::/path`. A limit holds for all groups below.
fn budget_below(root: &Path, cgroups: &str) -> u64 {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
    let mut limit: Option<u64> = None;
    while folder.starts_with(root) {
        let here = std::fs::read_to_string(folder.join("memory.max")).ok().and_then(|text| text.trim().parse().ok());
        limit = match (limit, here) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if !folder.pop() {
            break;
        }
    }
    limit.map_or(MEMORY_FALLBACK_BYTES, |bytes| bytes / 5 * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_to_the_root_holds() {
        let root = tempfile::tempdir().expect("temporary directory");
        let inner = root.path().join("pods/one");
        std::fs::create_dir_all(&inner).expect("folders");
        assert_eq!(budget_below(root.path(), "0::/pods/one\n"), MEMORY_FALLBACK_BYTES, "no limit at all");
        std::fs::write(inner.join("memory.max"), "max\n").expect("write");
        assert_eq!(budget_below(root.path(), "0::/pods/one\n"), MEMORY_FALLBACK_BYTES, "no limit here");
        std::fs::write(root.path().join("pods/memory.max"), "1000\n").expect("write");
        assert_eq!(budget_below(root.path(), "0::/pods/one\n"), 800);
        std::fs::write(inner.join("memory.max"), "500\n").expect("write");
        assert_eq!(budget_below(root.path(), "12:cpu:/x\n0::/pods/one\n"), 400);
        assert_eq!(budget_below(root.path(), ""), MEMORY_FALLBACK_BYTES, "the root has no limit");
    }
}
