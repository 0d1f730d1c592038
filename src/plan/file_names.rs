//! What file names tell about the writers that made them. Pure.
//!
//! Iceberg's Java writers name content files `<part>-<task>-<operation UUID>-<count>[-<suffix>].<extension>`, where one
//! writer counts up and hands all files of a count range to one commit; commits name manifests `<commit UUID>-m<n>.avro`
//! and manifest lists `snap-<snapshot id>-<attempt>-<commit UUID>.avro`; catalogs name metadata files
//! `<version>-<UUID>[.gz].metadata.json` or `v<version>.metadata.json`.

use hashbrown::{HashMap, HashSet};
use uuid::Uuid;

use crate::table::path_set::Fingerprint;

/// The last segment of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The file that a local checksum file (`.name.crc`, left by Hadoop's local file system) belongs to.
pub fn checksum_subject(path: &str) -> Option<String> {
    let name = file_name(path);
    let subject = name.strip_prefix('.')?.strip_suffix(".crc").filter(|s| !s.is_empty())?;
    Some(format!("{}{subject}", &path[..path.len() - name.len()]))
}

/// The name of a content file made by Iceberg's Java library, cut up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterFileName<'a> {
    /// `<part>-<task>-<operation id>`: one writer instance.
    pub writer: &'a str,
    /// How many files the writer had begun, this one included.
    pub count: u32,
    /// What follows the count: suffix and extension. Each has its own counter.
    pub rest: &'a str,
}

impl<'a> WriterFileName<'a> {
    /// Cuts a name up; `None` if it has another form. The operation id must begin with a UUID.
    pub fn parse(name: &'a str) -> Option<Self> {
        let stem = &name[..name.find('.')?];
        let (part, after_part) = stem.split_once('-')?;
        let (task, after_task) = after_part.split_once('-')?;
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(part) || part.len() < 5 || !digits(task) {
            return None;
        }
        let operation = after_task.get(..36).filter(|u| Uuid::try_parse(u).is_ok())?;
        let tail = &after_task[operation.len()..];
        let (before, last) = tail.rsplit_once('-')?;
        let is_count = |s: &str| digits(s) && s.len() >= 5;
        let (before, count) = if is_count(last) {
            (before, last)
        } else if !last.is_empty() && last.bytes().all(|b| b.is_ascii_alphabetic()) {
            before.rsplit_once('-').filter(|(_, count)| is_count(count))?
        } else {
            return None;
        };
        let writer_len = stem.len() - tail.len() + before.len();
        let rest = &name[writer_len + 1 + count.len()..];
        Some(Self { writer: &name[..writer_len], count: count.parse().ok()?, rest })
    }

    fn key(&self) -> Fingerprint {
        Fingerprint::of_text(&format!("{}|{}", self.writer, self.rest))
    }
}

/// The name of a manifest list, cut up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestListName {
    /// The snapshot.
    pub snapshot_id: i64,
    /// Attempt of the commit.
    pub attempt: u32,
    /// The commit.
    pub commit: Uuid,
}

impl ManifestListName {
    /// Cuts a name up; `None` if it has another form.
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_prefix("snap-")?.strip_suffix(".avro")?;
        let (snapshot_id, rest) = stem.split_once('-')?;
        let (attempt, commit) = rest.split_once('-')?;
        let commit = Some(commit).filter(|c| c.len() == 36).and_then(|c| Uuid::try_parse(c).ok())?;
        Some(Self { snapshot_id: snapshot_id.parse().ok()?, attempt: attempt.parse().ok()?, commit })
    }
}

/// The commit that made a manifest, by the manifest's name `<commit UUID>-m<n>.avro`.
pub fn manifest_commit(name: &str) -> Option<Uuid> {
    let (commit, number) = name.strip_suffix(".avro")?.rsplit_once("-m")?;
    let numbered = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    Some(commit).filter(|c| numbered && c.len() == 36).and_then(|c| Uuid::try_parse(c).ok())
}

/// Whether writers of tables make files with such a name: data, deletes, deletion vectors, statistics, metadata.
pub fn is_of_a_table(name: &str) -> bool {
    const ENDINGS: [&str; 7] = [".parquet", ".orc", ".avro", ".puffin", ".stats", ".metadata.json", ".gz"];
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file is table metadata, by its name.
pub fn is_metadata_file(name: &str) -> bool {
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

/// The version of a metadata file, by its name: counted by catalogs (`true`) or by Hadoop tables (`false`).
pub fn metadata_version(name: &str) -> Option<(bool, u64)> {
    let stem = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".metadata.json")?;
    let stem = stem.strip_suffix(".gz").unwrap_or(stem);
    if let Some(version) = stem.strip_prefix('v') {
        return Some((false, version.parse().ok()?));
    }
    let (version, id) = stem.split_once('-')?;
    let numbered = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
    Uuid::try_parse(id).ok().filter(|_| numbered)?;
    Some((true, version.parse().ok()?))
}

/// How far writers and commits have got, by the names of files that are, or once were, referenced.
#[derive(Debug, Clone, Default)]
pub struct WriterProgress {
    counts: HashMap<Fingerprint, u32>,
    attempts: HashMap<(i64, Uuid), u32>,
    commits: HashSet<Uuid>,
}

impl WriterProgress {
    /// Takes note of a file that a committed snapshot refers to.
    pub fn note(&mut self, path: &str) {
        let name = file_name(path);
        if let Some(name) = WriterFileName::parse(name) {
            let count = self.counts.entry(name.key()).or_default();
            *count = name.count.max(*count);
        } else if let Some(name) = ManifestListName::parse(name) {
            let attempt = self.attempts.entry((name.snapshot_id, name.commit)).or_default();
            *attempt = name.attempt.max(*attempt);
            self.commits.insert(name.commit);
        }
    }

    /// Whether whoever made this unreferenced file has since committed past it, so that it will never be referenced:
    /// the same writer has committed a file of a higher count, the same commit a later list,
    /// or the commit that made this manifest is done.
    pub fn is_past(&self, path: &str) -> bool {
        let name = file_name(path);
        if let Some(name) = WriterFileName::parse(name) {
            return self.counts.get(&name.key()).is_some_and(|count| name.count < *count);
        }
        if let Some(name) = ManifestListName::parse(name) {
            let attempt = self.attempts.get(&(name.snapshot_id, name.commit));
            return attempt.is_some_and(|attempt| name.attempt < *attempt);
        }
        manifest_commit(name).is_some_and(|commit| self.commits.contains(&commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0b9a9e3c-5d0f-4e5c-9d5e-123456789012";

    #[test]
    fn java_file_names_are_cut_up() {
        let name = format!("00003-17-{UUID}-00012.parquet");
        let parsed = WriterFileName::parse(&name).expect("a Java name");
        assert_eq!((parsed.writer, parsed.count, parsed.rest), (&*format!("00003-17-{UUID}"), 12, ".parquet"));
        let name = format!("00003-17-{UUID}-0-00012-deletes.parquet");
        let parsed = WriterFileName::parse(&name).expect("an epoch and a suffix");
        assert_eq!((parsed.writer, parsed.count), (&*format!("00003-17-{UUID}-0"), 12));
        assert_eq!(parsed.rest, "-deletes.parquet");
        for other in [
            format!("00000-0-{UUID}.parquet"), // PyIceberg: the last group of the UUID is no count
            format!("{UUID}-00001.parquet"),
            format!("00000-1-icewright-{UUID}-00007.parquet"),
            format!("1-1-{UUID}-00001.parquet"),
            format!("00000-x-{UUID}-00001.parquet"),
            "part-00000.parquet".into(),
            "00001".into(),
            "é-0.parquet".into(),
        ] {
            assert_eq!(WriterFileName::parse(&other), None, "{other}");
        }
    }

    #[test]
    fn names_of_metadata_are_cut_up() {
        assert_eq!(metadata_version(&format!("00012-{UUID}.metadata.json")), Some((true, 12)));
        assert_eq!(metadata_version(&format!("00012-{UUID}.gz.metadata.json")), Some((true, 12)));
        assert_eq!(metadata_version("v7.metadata.json.gz"), Some((false, 7)));
        assert_eq!(metadata_version(&format!("{UUID}.metadata.json")), None);
        assert_eq!(manifest_commit(&format!("{UUID}-m12.avro")), Uuid::try_parse(UUID).ok());
        assert_eq!(manifest_commit(&format!("optimized-m-{UUID}.avro")), None);
        let list = ManifestListName::parse(&format!("snap-77-2-{UUID}.avro")).expect("a list");
        assert_eq!((list.snapshot_id, list.attempt), (77, 2));
        assert_eq!(checksum_subject("/t/data/.f.parquet.crc").as_deref(), Some("/t/data/f.parquet"));
        assert_eq!(checksum_subject("/t/data/.crc"), None);
    }

    #[test]
    fn only_the_same_writer_counts_as_past() {
        let mut progress = WriterProgress::default();
        progress.note(&format!("s3://b/t/data/p=1/00003-17-{UUID}-00012.parquet"));
        let past = |name: String| progress.is_past(&format!("s3://b/t/data/p=2/{name}"));
        assert!(past(format!("00003-17-{UUID}-00011.parquet")));
        assert!(!past(format!("00003-17-{UUID}-00012.parquet")), "the same count proves nothing");
        assert!(!past(format!("00003-17-{UUID}-00013.parquet")), "not yet committed");
        assert!(!past(format!("00003-18-{UUID}-00001.parquet")), "another task");
        assert!(!past(format!("00003-17-{UUID}-00001-deletes.parquet")), "another counter");
        assert!(!past(format!("00003-17-{}-00001.parquet", UUID.replace('0', "1"))), "another operation");
    }

    #[test]
    fn a_commit_that_is_done_leaves_garbage_behind() {
        let mut progress = WriterProgress::default();
        progress.note(&format!("s3://b/t/metadata/snap-5-2-{UUID}.avro"));
        assert!(progress.is_past(&format!("s3://b/t/metadata/snap-5-1-{UUID}.avro")));
        assert!(!progress.is_past(&format!("s3://b/t/metadata/snap-5-3-{UUID}.avro")));
        assert!(!progress.is_past(&format!("s3://b/t/metadata/snap-6-1-{UUID}.avro")));
        assert!(progress.is_past(&format!("s3://b/t/metadata/{UUID}-m0.avro")));
        assert!(!progress.is_past(&format!("s3://b/t/metadata/{}-m0.avro", UUID.replace('0', "1"))));
    }
}
