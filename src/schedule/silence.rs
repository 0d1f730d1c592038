//! Which catalogs do not answer. Their tables are tried one at a time, and those that wait hold no place of other catalogs. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::policy::TableName;

/// A catalog that has not told of a table for so long is silent.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(20);

/// Tables that are being loaded, and the catalogs that do not answer.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Since when, milliseconds since the epoch, and whether the catalog has told meanwhile.
    loading: HashMap<TableName, (i64, Arc<AtomicBool>)>,
    /// Each with the table that it is tried with.
    catalogs: HashMap<String, Option<TableName>>,
}

impl Silence {
    /// Whether a table may be begun.
    pub(super) fn admits(&self, name: &TableName) -> bool {
        !self.catalogs.get(&name.catalog).is_some_and(Option::is_some)
    }

    /// A table is begun; the flag is to be raised once the table was loaded.
    pub(super) fn begin(&mut self, name: &TableName, now_ms: i64) -> Arc<AtomicBool> {
        if let Some(probe) = self.catalogs.get_mut(&name.catalog) {
            *probe = Some(name.clone());
        }
        let loaded = Arc::new(AtomicBool::new(false));
        self.loading.insert(name.clone(), (now_ms, loaded.clone()));
        loaded
    }

    /// What was begun has ended. Whether that makes the table's catalog a silent one.
    pub(super) fn end(&mut self, name: &TableName, unavailable: bool) -> bool {
        self.loading.remove(name);
        if !unavailable {
            self.answered(&name.catalog);
            return false;
        }
        let probe = self.catalogs.entry(name.catalog.clone()).or_default();
        let counts = probe.as_ref().is_none_or(|table| table == name);
        if counts {
            *probe = None;
        }
        counts
    }

    /// The catalog answers.
    pub(super) fn answered(&mut self, catalog: &str) {
        self.catalogs.remove(catalog);
    }

    /// How many of those begun wait for a silent catalog, and the catalogs found silent just now.
    pub(super) fn waiting(&mut self, now_ms: i64) -> (usize, Vec<String>) {
        self.loading.retain(|_, (_, loaded)| !loaded.load(Ordering::Relaxed));
        let limit = i64::try_from(SILENT_AFTER.as_millis()).unwrap_or(i64::MAX);
        let stuck = self.loading.iter().filter(|(_, (since_ms, _))| now_ms.saturating_sub(*since_ms) >= limit);
        let stuck: Vec<&String> = stuck.map(|(name, _)| &name.catalog).collect();
        let mut found = Vec::new();
        for catalog in &stuck {
            if !self.catalogs.contains_key(*catalog) {
                self.catalogs.insert((*catalog).clone(), None);
                found.push((*catalog).clone());
            }
        }
        (stuck.len(), found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        name.parse().expect("a name")
    }

    #[test]
    fn a_silent_catalog_is_tried_with_one_table_and_holds_no_places() {
        let mut silence = Silence::default();
        let (a, b, c, other) = (table("lake.db.a"), table("lake.db.b"), table("lake.db.c"), table("pond.db.d"));
        silence.begin(&a, 0);
        let loaded = silence.begin(&b, 0);
        assert_eq!(silence.waiting(19_999), (0, vec![]));
        loaded.store(true, Ordering::Relaxed);
        assert_eq!(silence.waiting(20_000), (1, vec!["lake".to_owned()]), "b was loaded");
        assert_eq!(silence.waiting(20_001), (1, vec![]), "told once");
        assert!(silence.admits(&c) && silence.admits(&other));
        silence.begin(&c, 21_000);
        assert!(!silence.admits(&b) && silence.admits(&other));
        assert!(!silence.end(&a, true), "c is still waited for");
        assert!(!silence.admits(&a));
        assert!(silence.end(&c, true));
        assert!(silence.admits(&a), "the next try");
        silence.begin(&a, 50_000);
        assert!(!silence.end(&a, false));
        assert!(silence.admits(&b) && silence.admits(&c));
        assert_eq!(silence.waiting(90_000), (0, vec![]));
    }
}
