//! The identity of a run: written into every file name and snapshot summary that the run makes,
//! so that a later start, or another tool, can tell what it left behind.

use std::fmt;

use uuid::Uuid;

/// Snapshot summary key holding the run id.
pub const SUMMARY_RUN_ID: &str = "icewright.run-id";
/// Snapshot summary key that is `true` on the last batch of a run: a start that finds a run without it knows the run was cut short.
pub const SUMMARY_RUN_COMPLETE: &str = "icewright.run-complete";
/// Snapshot summary key holding the snapshot a rewrite was planned from. What others committed after it is not in the rewrite,
/// though it may precede the rewrite's own snapshots.
pub const SUMMARY_PLANNED_SNAPSHOT: &str = "icewright.planned-snapshot-id";
/// Snapshot summary key holding the action, such as `rewrite-data-files`.
pub const SUMMARY_ACTION: &str = "icewright.action";

const PREFIX: &str = "icewright-";
/// Digits of a table's UUID in file names.
const MARK: usize = 12;

/// A run's id: a version 7 UUID, whose first bits tell when the run started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub Uuid);

impl RunId {
    /// When the run started, milliseconds since the epoch.
    pub fn started_ms(self) -> i64 {
        i64::try_from(self.0.as_u128() >> 80).unwrap_or(i64::MAX)
    }

    /// The part of file names that marks a file as made by this run: `icewright-<uuid>`.
    pub fn file_token(self) -> String {
        format!("{PREFIX}{}", self.0.hyphenated())
    }

    /// The same, and for which table the file was made: `icewright-<uuid>-<last twelve digits of the table's UUID>`. Tables may share a
    /// directory, and a run's id alone does not tell which of them it worked on.
    pub fn table_token(self, table: Uuid) -> String {
        if table.is_nil() { self.file_token() } else { format!("{}-{}", self.file_token(), mark(table)) }
    }

    /// Whether the last path segment of a file's path, made by a run, speaks for the table, or for none.
    pub fn may_be_for(path: &str, table: Uuid) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let after = name.split_once(PREFIX).and_then(|(_, rest)| rest.get(36..)).unwrap_or_default();
        let named = after.strip_prefix('-').and_then(|rest| rest.split(['-', '.']).next());
        let named = named.filter(|text| text.len() == MARK && text.bytes().all(|b| b.is_ascii_hexdigit()));
        named.is_none_or(|named| named == mark(table))
    }

    /// The run that made a file, by the last path segment of the file's path.
    pub fn from_file_name(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        let rest = &name[name.find(PREFIX)? + PREFIX.len()..];
        Uuid::try_parse(rest.get(..36)?).ok().filter(|u| u.get_version_num() == 7).map(Self)
    }
}

fn mark(table: Uuid) -> String {
    table.simple().to_string().split_off(32 - MARK)
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for RunId {
    type Err = uuid::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(s).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[test]
    fn a_file_name_gives_back_its_run() {
        let run = RunId(SystemClock.uuid());
        let path = format!("s3://b/data/a=icewright-x/00000-1-{}-00007.parquet", run.file_token());
        assert_eq!(RunId::from_file_name(&path), Some(run));
        assert_eq!(RunId::from_file_name("s3://b/data/00000-1-icewright-nonsense-00007.parquet"), None);
        let (own, other) = (SystemClock.uuid(), SystemClock.uuid());
        for path in [path, format!("00000-1-{}-00007.parquet", run.table_token(Uuid::nil()))] {
            assert!(RunId::may_be_for(&path, own), "earlier versions named no table");
        }
        for name in
            ["00000-1-{}-00007.parquet", "0-{}-m0.avro", "snap-1-1-0-{}.avro", ".00000-1-{}-00007.parquet.0.tmp"]
        {
            let path = format!("s3://b/data/{}", name.replace("{}", &run.table_token(own)));
            assert_eq!(RunId::from_file_name(&path), Some(run));
            assert!(RunId::may_be_for(&path, own) && !RunId::may_be_for(&path, other), "{path}");
        }
        assert!((SystemClock.now_ms() - run.started_ms()).abs() < 60_000);
    }
}
