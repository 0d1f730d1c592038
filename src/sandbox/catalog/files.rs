//! Files that a kill at any moment leaves whole. A power cut may lose the last ones: nothing waits for the disk.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use super::problem::{CatalogError, CatalogResult};

/// Files whose names begin so are on their way; one that is found at start was left by a kill and means nothing.
pub(super) const TEMP_PREFIX: &str = ".tmp-";

/// Makes a directory that must not be there yet; false if something is.
pub(super) fn reserve_dir(dir: &Path) -> io::Result<bool> {
    fs::create_dir_all(parent_of(dir)?)?;
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Writes a new file; an existing one is an error.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(parent_of(path)?)?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// Puts a file in the place of another at once: readers and kills see the old bytes or the new ones.
pub(super) fn replace(path: &Path, bytes: &[u8], unique: uuid::Uuid) -> io::Result<()> {
    let temp = parent_of(path)?.join(format!("{TEMP_PREFIX}{unique}"));
    write_new(&temp, bytes)?;
    fs::rename(&temp, path).inspect_err(|_| {
        let _ = fs::remove_file(&temp);
    })
}

fn parent_of(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::Error::other(format!("{} has no parent directory", path.display())))
}

/// The path behind `file:///a`, `file:/a` or `/a`. Anything else, and any `..`, is refused.
pub(super) fn local_path(location: &str) -> CatalogResult<PathBuf> {
    let path = match location.strip_prefix("file:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => location,
    };
    let path = Path::new(path);
    if !path.is_absolute() || path.components().any(|c| c == Component::ParentDir) {
        return Err(CatalogError::bad_request(format!(
            "Location {location} is not an absolute path or file URI: this catalog keeps metadata on local disk"
        )));
    }
    Ok(path.to_path_buf())
}

/// Reads a metadata file, compressed or not.
pub(super) fn read_metadata(path: &Path) -> io::Result<String> {
    let bytes = fs::read(path)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text)?;
        return Ok(text);
    }
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_become_paths() {
        for location in ["file:///w/t", "file:/w/t", "/w/t"] {
            assert_eq!(local_path(location).expect("local"), Path::new("/w/t"));
        }
        for location in ["s3://b/t", "w/t", "file://host/t/../../etc", "file:t", "/w/../etc", ""] {
            assert!(local_path(location).is_err(), "{location}");
        }
    }

    #[test]
    fn a_new_file_never_overwrites_and_a_replacement_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("a/b/f.json");
        write_new(&path, b"one").expect("write");
        assert!(write_new(&path, b"two").is_err());
        assert_eq!(fs::read(&path).expect("read"), b"one");
        replace(&path, b"three", uuid::Uuid::nil()).expect("replace");
        assert_eq!(fs::read(&path).expect("read"), b"three");
        assert_eq!(fs::read_dir(dir.path().join("a/b")).expect("list").count(), 1);
    }
}
