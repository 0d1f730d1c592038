//! Whether each catalog can be used, from what its listings and the loads of its tables show. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// A catalog that stays in trouble is told of again after so long, milliseconds.
const TOLD_AGAIN_MS: i64 = 10 * 60 * 1000;
/// The problem of a catalog that tells of none of its tables.
const SILENT: &str = "it lists its tables, but several of them could not be loaded and none could";

#[derive(Debug, Default)]
pub(super) struct CatalogHealth {
    known: BTreeMap<String, CatalogTrouble>,
}

#[derive(Debug, Default)]
struct CatalogTrouble {
    /// Why it was not listed when that was last tried.
    not_listed: Option<String>,
    /// What a part of it did not tell when it was last listed.
    unclear: Option<String>,
    /// It tells of none of its tables.
    silent: bool,
    /// When its trouble was last told, milliseconds since the epoch; `None`: it is well.
    told_ms: Option<i64>,
}

/// How a catalog does now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// What is wrong with it; `None`: it is up.
    pub(super) problem: Option<String>,
    /// Whether people should hear of it: it is a change, or the last word is long ago.
    pub(super) is_news: bool,
}

impl CatalogHealth {
    /// It listed its tables, or did not, and why.
    pub(super) fn listed(&mut self, catalog: &str, failure: Option<String>, now_ms: i64) -> Judged {
        let state = self.known.entry(catalog.to_owned()).or_default();
        state.not_listed = failure;
        state.judge(now_ms)
    }

    /// What it did not tell of a part of its tables, if anything. Gives whether that is new.
    pub(super) fn unclear(&mut self, catalog: &str, problem: Option<&str>) -> bool {
        let state = self.known.entry(catalog.to_owned()).or_default();
        let before = std::mem::replace(&mut state.unclear, problem.map(str::to_owned));
        state.unclear.is_some() && state.unclear != before
    }

    /// These catalogs tell of none of their tables. Gives those that are among them, or have been until now.
    pub(super) fn silent(&mut self, silent: &BTreeSet<String>, now_ms: i64) -> Vec<(String, Judged)> {
        for catalog in silent {
            self.known.entry(catalog.clone()).or_default();
        }
        let concerned = self.known.iter_mut().filter(|(catalog, state)| state.silent || silent.contains(*catalog));
        concerned
            .map(|(catalog, state)| {
                state.silent = silent.contains(catalog);
                (catalog.clone(), state.judge(now_ms))
            })
            .collect()
    }

    pub(super) fn forget(&mut self, catalog: &str) {
        self.known.remove(catalog);
    }
}

impl CatalogTrouble {
    fn judge(&mut self, now_ms: i64) -> Judged {
        let silent = || self.silent.then(|| SILENT.to_owned());
        let problem = self.not_listed.clone().or_else(silent);
        let is_news = match (&problem, self.told_ms) {
            (None, told) => told.is_some(),
            (Some(_), None) => true,
            // A clock that was set back does not make it silent for longer.
            (Some(_), Some(told_ms)) => !(0..TOLD_AGAIN_MS).contains(&now_ms.saturating_sub(told_ms)),
        };
        if problem.is_none() {
            self.told_ms = None;
        } else if is_news {
            self.told_ms = Some(now_ms);
        }
        Judged { problem, is_news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(problem: Option<&str>, is_news: bool) -> Judged {
        Judged { problem: problem.map(str::to_owned), is_news }
    }

    #[test]
    fn trouble_is_told_when_it_begins_and_every_ten_minutes_and_when_it_ends() {
        let mut catalogs = CatalogHealth::default();
        assert_eq!(catalogs.listed("lake", None, 0), judged(None, false));
        let mut told = Vec::new();
        for second in 1..=3600 {
            let judged = catalogs.listed("lake", Some("refused".into()), second * 1000);
            assert_eq!(judged.problem.as_deref(), Some("refused"));
            told.extend(judged.is_news.then_some(second));
        }
        assert_eq!(told, [1, 601, 1201, 1801, 2401, 3001]);
        assert_eq!(catalogs.listed("lake", None, 3_601_000), judged(None, true));
        assert_eq!(catalogs.listed("lake", None, 3_602_000), judged(None, false));
    }

    #[test]
    fn a_listing_does_not_hide_that_no_table_is_told_of() {
        let mut catalogs = CatalogHealth::default();
        let lake = BTreeSet::from(["lake".to_owned()]);
        catalogs.listed("lake", None, 0);
        assert_eq!(catalogs.silent(&lake, 1), [("lake".to_owned(), judged(Some(SILENT), true))]);
        assert_eq!(catalogs.listed("lake", None, 2), judged(Some(SILENT), false));
        assert_eq!(catalogs.silent(&lake, 3), [("lake".to_owned(), judged(Some(SILENT), false))]);
        assert_eq!(catalogs.silent(&BTreeSet::new(), 4), [("lake".to_owned(), judged(None, true))]);
        assert_eq!(catalogs.silent(&BTreeSet::new(), 5), []);
    }
}
