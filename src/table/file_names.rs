//! What file names tell about the writers that made them. Pure.
//!
//! Iceberg's Java writers name content files `<part>-<task>-<operation UUID>-<count>[-<suffix>].<extension>`, where one
//! writer counts up and hands all files of a count range to one commit; commits name manifests `<commit UUID>-m<n>.avro`
//! and manifest lists `snap-<snapshot id>-<attempt>-<commit UUID>.avro`; catalogs name metadata files
//! `<version>-<UUID>[.gz].metadata.json` or `v<version>.metadata.json`, some `<UUID>.metadata.json`.

use hashbrown::{HashMap, HashSet};
use uuid::Uuid;

use crate::table::path_set::Fingerprint;

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
    pub snapshot_id: i64,
    /// Attempt of the commit.
    pub attempt: u32,
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

/// Whether writers of tables make files with such a name. The list is closed: data and delete files and partition statistics by
/// the names of their formats (`.parq` is Impala's), manifests and lists (`.avro`), deletion vectors (`.puffin`), statistics
/// (`<..>-<UUID>.stats`), and metadata, compressed or not. Archives and exports in other formats are none.
pub fn is_of_a_table(name: &str) -> bool {
    const ENDINGS: [&str; 5] = [".parquet", ".parq", ".orc", ".avro", ".puffin"];
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        || is_metadata_file(&name)
        || (name.ends_with(".stats") && around_uuid(&name).is_some())
}

/// Whether runs of this project make files with such a name: those of tables, and the temporary ones beside local files.
pub fn is_of_a_run(name: &str) -> bool {
    let unfinished = name.strip_prefix('.').and_then(|n| n.strip_suffix(".tmp")).and_then(|n| n.rsplit_once('.'));
    is_of_a_table(unfinished.map_or(name, |(name, _)| name))
}

/// What stands in a name before the first UUID in it and after that, if there is one.
fn around_uuid(name: &str) -> Option<(&str, &str)> {
    let bytes = name.as_bytes();
    let hyphenated = |at: usize| [8, 13, 18, 23].iter().all(|hyphen| bytes.get(at + hyphen) == Some(&b'-'));
    let is_uuid = |at: &usize| hyphenated(*at) && name.get(*at..at + 36).is_some_and(|u| Uuid::try_parse(u).is_ok());
    let at = (0..bytes.len().saturating_sub(35)).find(is_uuid)?;
    Some((name.get(..at)?, name.get(at + 36..)?))
}

/// Whether no two files have this name: before its UUID there are numbers only, and words that writers of tables use there, and
/// after it what they put there. Others write the UUID of a job or a query into the names of all its files, and count anew in each
/// partition: Spark's own tables (`part-00000-<UUID>`), StarRocks (`<UUID>_1_0_0`), Arrow (`<UUID>-0`).
fn is_unique(name: &str) -> bool {
    const WORDS: [&str; 4] = ["snap-", "icewright-", "optimized-m-", "partition-stats-"];
    let name = name.to_ascii_lowercase();
    let Some((before, after)) = around_uuid(&name) else { return false };
    let numbers = WORDS.iter().fold(before.to_owned(), |rest, word| rest.replacen(word, "", 1));
    numbers.bytes().all(|b| b.is_ascii_digit() || b == b'-') && counts_on(after)
}

/// Whether what follows the UUID of a file name is nothing, or a count that goes on from partition to partition.
fn counts_on(after: &str) -> bool {
    let after = after.split('.').next().unwrap_or(after);
    let is_count = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count() >= 5;
    let is_manifest = |text: &str| text.strip_prefix('m').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let Some(counted) = after.strip_prefix('-') else { return after.is_empty() };
    let mut parts = counted.rsplit('-').skip_while(|word| word.bytes().all(|b| b.is_ascii_alphabetic()));
    counted.starts_with("icewright-") || parts.next().is_some_and(|last| is_count(last) || is_manifest(last))
}

/// A file name as it compares to the names that other stores, or other spellings, may give the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedName {
    /// Letters and digits of the name, percent-decoded and in lower case; accented letters, which have several spellings, are left out.
    pub text: String,
    /// Whether no two files have this name, as writers of tables see to by a UUID.
    pub is_unique: bool,
}

impl FoldedName {
    /// Folds the last segment of a path.
    pub fn of(path: &str) -> Self {
        let mut name = file_name(path).to_owned();
        while let Some(decoded) = percent_decoded(&name) {
            name = decoded;
        }
        let mut text = String::with_capacity(name.len());
        let mut after_letter = false;
        for c in name.chars().flat_map(char::to_lowercase) {
            // An accent belongs to the letter before it; the two may also be spelt as one character.
            if after_letter && ('\u{300}'..='\u{36f}').contains(&c) {
                text.pop();
            }
            after_letter = c.is_ascii_alphanumeric();
            if after_letter {
                text.push(c);
            }
        }
        Self { text, is_unique: is_unique(&name) }
    }
}

/// The text with `%xx` decoded once; `None` if there is nothing to decode.
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        match rest {
            [b'%', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                decoded.push((hex(*high)? << 4) | hex(*low)?);
                rest = after;
            }
            _ => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    (decoded.len() < text.len()).then(|| String::from_utf8_lossy(&decoded).into_owned())
}

/// Whether a file is table metadata, by its name.
pub fn is_metadata_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

/// Whether a metadata file's name is nothing but a UUID, as some catalogs name them.
pub fn is_unnumbered_metadata(name: &str) -> bool {
    metadata_stem(name).is_some_and(|stem| stem.len() == 36 && Uuid::try_parse(stem).is_ok())
}

fn metadata_stem(name: &str) -> Option<&str> {
    let stem = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".metadata.json")?;
    Some(stem.strip_suffix(".gz").unwrap_or(stem))
}

/// The version of a metadata file, by its name: counted by catalogs (`true`) or by Hadoop tables (`false`).
pub fn metadata_version(name: &str) -> Option<(bool, u64)> {
    let stem = metadata_stem(name)?;
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
    fn names_of_table_files_are_a_closed_list() {
        for own in [
            "x.parquet",
            "X.PARQUET",
            "1a-0_7_data.0.parq",
            "x.snappy.parquet",
            "x.orc",
            "x-m0.avro",
            "x-deletes.puffin",
            "v1.metadata.json",
            "v1.gz.metadata.json",
            "v1.metadata.json.gz",
        ] {
            assert!(is_of_a_table(own), "{own}");
        }
        assert!(is_of_a_table(&format!("77-{UUID}.stats")));
        for foreign in [
            "backup.tar.gz",
            "dump.sql.gz",
            "events.json.gz",
            "x.parquet.gz",
            "x.avro.gz",
            "metadata.json",
            "gc.stats",
            "x.parquet.bak",
            "parquet",
            "x.zst",
            "x.json",
            "_SUCCESS",
            "",
        ] {
            assert!(!is_of_a_table(foreign), "{foreign}");
        }
        let run = format!("00000-1-icewright-{UUID}-00001");
        assert!(is_of_a_run(&format!("{run}.parquet")) && is_of_a_run(&format!(".{run}.parquet.{UUID}.tmp")));
        assert!(!is_of_a_run(&format!("{run}.log.gz")) && !is_of_a_run(&format!(".{run}.gz.{UUID}.tmp")));
    }

    #[test]
    fn spellings_of_one_name_fold_to_one() {
        let folded = |name: &str| FoldedName::of(&format!("s3://b/t/{name}")).text;
        for same in [
            ["a b.parquet", "a%20b.parquet"],
            ["a b.parquet", "a%2520b.parquet"],
            ["a b.parquet", "a+b.parquet"],
            ["A.PARQUET", "a.parquet"],
            ["caf\u{e9}1.parquet", "cafe\u{301}1.parquet"],
            ["\u{1ebf}1", "e\u{302}\u{301}1"],
            ["x\u{3ac}1", "x\u{3b1}\u{301}1"],
            ["caf%C3%A9", "caf\u{e9}"],
        ] {
            assert_eq!(folded(same[0]), folded(same[1]), "{same:?}");
        }
        assert_ne!(folded("a1.parquet"), folded("a2.parquet"));
        assert_eq!(folded("50%.parquet%2"), "50parquet2");
    }

    #[test]
    fn names_that_engines_without_iceberg_repeat_are_not_unique() {
        let is_unique = |name: &str| FoldedName::of(name).is_unique;
        for name in [
            "00003-17-{}-00012.parquet",
            "00000-7-{}.parquet",
            "00000-1-icewright-{}-00007.parquet",
            "{}-m0.avro",
            "optimized-m-{}.avro",
            "snap-5-1-{}.avro",
            "00001-{}.metadata.json",
            "77-{}.stats",
            "partition-stats-77-{}.parquet",
            "{}.parquet",
            "{}.gz.metadata.json",
            "00003-17-{}-0-00012-deletes.parquet",
            "00003-17-{}-00001-deletes.puffin",
            "0b9a9e3c-5d0f-4e5c-9d5e-000000000001-icewright-{}-m0.avro",
            "7-00000-{}.parquet",
        ] {
            assert!(is_unique(&name.replace("{}", UUID)), "{name}");
            assert!(is_unique(&name.replace("{}", &UUID.to_uppercase().replace('-', "%2D"))), "{name}");
        }
        for name in [
            "part-00000-{}.c000.snappy.parquet",
            "part-00000-{}-c000.zstd.parquet",
            "data_{}_008_4_0.snappy.parquet",
            "{}_1_0_0.parquet",
            "{}_1_merge_0_12.parquet",
            "{}-0.parquet",
            "{}-part-0.parquet",
            "20261130_101112_00001_abcde-{}.parquet",
            "000000_0",
            "v1.metadata.json",
            "version-hint.text",
            "x",
        ] {
            assert!(!is_unique(&name.replace("{}", UUID)), "{name}");
        }
        assert!(!is_unique(&UUID[..35]));
    }

    #[test]
    fn names_of_metadata_are_cut_up() {
        assert!(is_unnumbered_metadata(&format!("{UUID}.metadata.json")));
        assert!(is_unnumbered_metadata(&format!("{UUID}.gz.metadata.json")));
        assert!(!is_unnumbered_metadata(&format!("00001-{UUID}.metadata.json")));
        assert!(!is_unnumbered_metadata(&format!("{UUID}-backup.metadata.json")));
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
