//! Files on the local file system, for try-outs, tests and tables on a mounted disk.
//!
//! `file:///a/b`, `file:/a/b` and `/a/b` name the same file. Names are taken verbatim: Iceberg's Java library (through
//! Hadoop paths) and PyIceberg write the same characters into metadata as onto the disk, so `%20` is three characters.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Store, StoreWriter, already_exists};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::table::path::SplitPath;
use crate::table::{FileIdentity, ListedFile};

/// Listed files that may wait for the reader.
const LIST_BUFFER: usize = 256;

pub(super) struct LocalStore {
    clock: Arc<dyn Clock>,
}

impl Default for LocalStore {
    fn default() -> Self {
        Self { clock: SystemClock::shared() }
    }
}

/// The file that a path names on disk.
fn disk_path(path: &str) -> Result<PathBuf> {
    let parts = SplitPath::parse(path)?;
    if !parts.scheme.eq_ignore_ascii_case("file") {
        return Err(Error::internal(format!("{path} was given to the local store")));
    }
    Ok(PathBuf::from(parts.key))
}

fn io_error(doing: &str, path: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{doing} {path}: {error}"))
}

/// Runs blocking file work off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::internal(format!("file work was cut off: {e}")))?
}

fn describe(path: String, metadata: &fs::Metadata) -> ListedFile {
    let modified = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    let last_modified_ms = modified.and_then(|d| i64::try_from(d.as_millis()).ok());
    ListedFile { path, size: metadata.len(), last_modified_ms }
}

#[async_trait]
impl Store for LocalStore {
    async fn read(&self, path: &str) -> Result<Bytes> {
        let (file, path) = (disk_path(path)?, path.to_owned());
        blocking(move || fs::read(file).map(Bytes::from).map_err(|e| io_error("read", &path, &e))).await
    }

    async fn read_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let (file, path) = (disk_path(path)?, path.to_owned());
        let length = super::range_length(&path, &range)?;
        blocking(move || {
            let mut content = vec![0; length];
            File::open(file).and_then(|f| f.read_exact_at(&mut content, range.start)).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => super::short_read(&path, &range),
                _ => io_error("read", &path, &e),
            })?;
            Ok(Bytes::from(content))
        })
        .await
    }

    async fn stat(&self, path: &str) -> Result<Option<ListedFile>> {
        let (file, path) = (disk_path(path)?, path.to_owned());
        blocking(move || match fs::metadata(file) {
            Ok(metadata) if metadata.is_file() => Ok(Some(describe(path, &metadata))),
            Ok(_) => Ok(None),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(io_error("stat", &path, &e)),
        })
        .await
    }

    async fn identities(&self, paths: &[String]) -> Result<Vec<Option<FileIdentity>>> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let paths = paths.to_vec();
        blocking(move || paths.iter().map(|path| identity(path)).collect()).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn StoreWriter>> {
        let (target, path) = (disk_path(path)?, path.to_owned());
        let unique = self.clock.uuid();
        blocking(move || Ok(Box::new(LocalWriter::create(target, path, unique)?) as Box<dyn StoreWriter>)).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ListedFile>> {
        let prefix = prefix.trim_end_matches('/').to_owned();
        let root = match disk_path(&crate::table::path::join(&prefix, "")) {
            Ok(root) => root,
            Err(e) => return futures::stream::once(async { Err(e) }).boxed(),
        };
        let (sender, receiver) = tokio::sync::mpsc::channel(LIST_BUFFER);
        // The walk ends by itself when the reader goes away.
        drop(tokio::task::spawn_blocking(move || walk(root, prefix, &sender)));
        futures::stream::unfold(receiver, |mut r| async { r.recv().await.map(|file| (file, r)) }).boxed()
    }

    async fn time_ms(&self, near: &str) -> Result<Option<i64>> {
        let (near, path, unique) = (disk_path(near)?, near.to_owned(), self.clock.uuid());
        blocking(move || {
            let made = made_now(&near, &path, unique)?;
            let metadata = made.metadata().map_err(|e| io_error("stat", &path, &e))?;
            Ok(describe(path, &metadata).last_modified_ms)
        })
        .await
    }

    async fn delete_batch(&self, paths: &[String]) -> Vec<Result<()>> {
        let paths = paths.to_vec();
        let count = paths.len();
        let work = blocking(move || Ok(paths.iter().map(|path| delete(path)).collect::<Vec<_>>())).await;
        work.unwrap_or_else(|e| (0..count).map(|_| Err(e.clone())).collect())
    }
}

/// An empty file beside `near`, dated by the file system as any other, that is gone when it is closed: one without a name where
/// the file system has such, so that nothing is left behind whatever happens.
fn made_now(near: &Path, path: &str, unique: uuid::Uuid) -> Result<File> {
    #[cfg(target_os = "linux")]
    if let Some(directory) = near.parent() {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
        match OpenOptions::new().write(true).custom_flags(flags).open(directory) {
            Ok(file) => return Ok(file),
            Err(e) if is_absent(&e) => return Err(io_error("stat", path, &e)),
            // Not every file system has such files.
            Err(_) => {}
        }
    }
    let target = near.with_file_name("clock");
    let mut writer = LocalWriter::create(target, path.to_owned(), unique)?;
    writer.file.take().ok_or_else(|| writer.closed())
}

fn identity(path: &str) -> Result<Option<FileIdentity>> {
    match fs::metadata(disk_path(path)?) {
        Ok(found) => Ok(Some(FileIdentity { device: found.dev(), inode: found.ino(), hard_links: found.nlink() })),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(io_error("stat", path, &e)),
    }
}

/// A path below a file is absent just like one that nothing has made.
fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn delete(path: &str) -> Result<()> {
    match fs::remove_file(disk_path(path)?) {
        Err(e) if !is_absent(&e) => Err(io_error("delete", path, &e)),
        _ => Ok(()),
    }
}

/// Sends every regular file below `root`. Links are neither followed nor listed: what they point at belongs elsewhere.
fn walk(root: PathBuf, prefix: String, sender: &tokio::sync::mpsc::Sender<Result<ListedFile>>) {
    let mut directories = vec![(root, prefix)];
    while let Some((directory, name)) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // Also a directory that vanished meanwhile.
            Err(e) if is_absent(&e) => continue,
            Err(e) => {
                let _ = sender.blocking_send(Err(io_error("list", &name, &e)));
                return;
            }
        };
        for entry in entries {
            let found = entry.map_err(|e| io_error("list", &name, &e)).and_then(|e| visit(&e, &name, &mut directories));
            let failed = found.is_err();
            if let Some(item) = found.transpose()
                && (sender.blocking_send(item).is_err() || failed)
            {
                return;
            }
        }
    }
}

/// The entry if it is a file; a directory is put aside for later.
fn visit(entry: &fs::DirEntry, parent: &str, later: &mut Vec<(PathBuf, String)>) -> Result<Option<ListedFile>> {
    let name = entry.file_name();
    let Some(name) = name.to_str() else {
        return Err(Error::invalid(format!("list {parent}: file name {name:?} is not Unicode")));
    };
    let path = format!("{parent}/{name}");
    let read = entry.file_type().and_then(|t| if t.is_file() { entry.metadata().map(Some) } else { Ok(None) });
    match read {
        Ok(Some(metadata)) => Ok(Some(describe(path, &metadata))),
        Ok(None) => {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                later.push((entry.path(), path));
            }
            Ok(None)
        }
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(io_error("list", &path, &e)),
    }
}

/// Writes beside the target under a name of its own; the target appears whole or not at all.
struct LocalWriter {
    file: Option<File>,
    temporary: PathBuf,
    target: PathBuf,
    path: String,
    size: u64,
}

impl LocalWriter {
    fn create(target: PathBuf, path: String, unique: uuid::Uuid) -> Result<Self> {
        let fail = |e: &io::Error| io_error("create", &path, e);
        let (Some(directory), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::invalid(format!("create {path}: not a file name")));
        };
        if fs::symlink_metadata(&target).is_ok() {
            return Err(already_exists(&path));
        }
        fs::create_dir_all(directory).map_err(|e| fail(&e))?;
        let temporary = directory.join(temporary_name(&name.to_string_lossy(), unique));
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(|e| fail(&e))?;
        Ok(Self { file: Some(file), temporary, target, path, size: 0 })
    }

    fn closed(&self) -> Error {
        Error::internal(format!("write {}: the writer is closed", self.path))
    }
}

/// The name of the target is kept in it: it tells which run left the file if this process is killed.
fn temporary_name(name: &str, unique: uuid::Uuid) -> String {
    // File names end at 255 bytes, of which the rest of this one takes 38.
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}.{}.tmp", &name[..end], unique.simple())
}

/// Makes the finished file visible under its name, unless that name is taken.
fn publish(file: &File, temporary: &Path, target: &Path, path: &str) -> Result<()> {
    let fail = |e: &io::Error| io_error("close", path, e);
    file.sync_all().map_err(|e| fail(&e))?;
    // A hard link is the portable way to create only if absent.
    fs::hard_link(temporary, target).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => already_exists(path),
        _ => fail(&e),
    })?;
    // The name must be as durable as the content, since a commit that refers to it follows.
    if let Some(directory) = target.parent() {
        File::open(directory).and_then(|d| d.sync_all()).map_err(|e| fail(&e))?;
    }
    Ok(())
}

#[async_trait]
impl StoreWriter for LocalWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        let mut file = self.file.take().ok_or_else(|| self.closed())?;
        let (path, length) = (self.path.clone(), content.len() as u64);
        self.file = Some(
            blocking(move || {
                file.write_all(&content).map_err(|e| io_error("write", &path, &e))?;
                Ok(file)
            })
            .await?,
        );
        self.size += length;
        Ok(())
    }

    async fn close(&mut self) -> Result<u64> {
        let file = self.file.take().ok_or_else(|| self.closed())?;
        let (temporary, target, path) = (self.temporary.clone(), self.target.clone(), self.path.clone());
        blocking(move || {
            let published = publish(&file, &temporary, &target, &path);
            let _ = fs::remove_file(&temporary);
            published
        })
        .await?;
        Ok(self.size)
    }

    async fn abort(&mut self) -> Result<()> {
        self.file = None;
        match fs::remove_file(&self.temporary) {
            Err(e) if !is_absent(&e) => Err(io_error("abort", &self.path, &e)),
            _ => Ok(()),
        }
    }
}

impl Drop for LocalWriter {
    /// A writer that was neither closed nor aborted, or that failed in between, leaves nothing behind.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}
