//! Which tables get no answer from their catalog, and which catalogs answer for none of theirs. Pure.
//!
//! A table whose load hangs is silent itself. Its catalog is silent only once several of its tables are, while it has told of
//! none. One that was silent while others were told of speaks for itself alone, until it is told of, too. Tables of a silent catalog are tried one at a time, and loads that hang hold no worker.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::table::TableName;

/// A table that was not told of for so long is silent.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(20);
/// So many silent tables make a silent catalog; fewer if it has no more.
pub(super) const AGREE: usize = 3;

/// Tables that are being loaded, and what their catalogs answered.
#[derive(Debug, Default)]
pub(super) struct Silence {
    loading: HashMap<TableName, Load>,
    catalogs: BTreeMap<String, Voices>,
}

#[derive(Debug)]
struct Load {
    /// Milliseconds since the epoch.
    since_ms: i64,
    /// Whether the catalog has told of the table.
    told: Arc<AtomicBool>,
}

/// What is known of a catalog.
#[derive(Debug, Default)]
struct Voices {
    /// When it last told of a table, milliseconds since the epoch.
    told_ms: Option<i64>,
    /// Tables that it did not tell of since; as many as a judgement needs at most.
    silent: BTreeSet<TableName>,
    /// Tables that it did not tell of while it told of others.
    alone: HashSet<TableName>,
    /// Whether the catalog itself is silent, and the table that it is tried with.
    down: bool,
    probe: Option<TableName>,
}

impl Silence {
    /// Whether a table may be begun.
    pub(super) fn admits(&self, name: &TableName) -> bool {
        !self.catalogs.get(&name.catalog).is_some_and(|voices| voices.down && voices.probe.is_some())
    }

    /// A table is begun; the flag is to be raised once the table was loaded.
    pub(super) fn begin(&mut self, name: &TableName, now_ms: i64) -> Arc<AtomicBool> {
        if let Some(voices) = self.catalogs.get_mut(&name.catalog).filter(|voices| voices.down) {
            voices.probe = Some(name.clone());
        }
        let told = Arc::new(AtomicBool::new(false));
        self.loading.insert(name.clone(), Load { since_ms: now_ms, told: told.clone() });
        told
    }

    /// What was begun has ended, perhaps since the catalog was not available. Any other end counts as its answer.
    pub(super) fn end(&mut self, name: &TableName, unavailable: bool, now_ms: i64) {
        let load = self.loading.remove(name);
        if !unavailable {
            return self.told_of(name, now_ms);
        }
        let voices = self.catalogs.entry(name.catalog.clone()).or_default();
        if voices.probe.as_ref() == Some(name) {
            voices.probe = None;
        }
        // Others may have been told of while this one hung.
        if load.is_none_or(|load| voices.told_ms.is_none_or(|told_ms| load.since_ms >= told_ms)) || voices.quiet(now_ms)
        {
            voices.hear_nothing_of(name);
        } else {
            voices.alone.insert(name.clone());
        }
    }

    /// The catalog tells of its tables again.
    pub(super) fn told(&mut self, catalog: &str, now_ms: i64) {
        let voices = self.catalogs.entry(catalog.to_owned()).or_default();
        let alone = std::mem::take(&mut voices.alone);
        *voices = Voices { told_ms: Some(now_ms), alone, ..Voices::default() };
    }

    fn told_of(&mut self, name: &TableName, now_ms: i64) {
        let voices = self.catalogs.entry(name.catalog.clone()).or_default();
        let silent = std::mem::take(&mut voices.silent);
        voices.alone.extend(silent);
        voices.alone.remove(name);
        self.told(&name.catalog, now_ms);
    }

    pub(super) fn table_gone(&mut self, name: &TableName) {
        if let Some(voices) = self.catalogs.get_mut(&name.catalog) {
            voices.silent.remove(name);
            voices.alone.remove(name);
        }
    }

    pub(super) fn forget(&mut self, catalog: &str) {
        self.catalogs.remove(catalog);
    }

    /// The wall clock was set by so much, back if below zero: what has passed before stays the same.
    pub(super) fn clock_set(&mut self, by_ms: i64) {
        let told = self.catalogs.values_mut().filter_map(|voices| voices.told_ms.as_mut());
        for at_ms in told.chain(self.loading.values_mut().map(|load| &mut load.since_ms)) {
            *at_ms = at_ms.saturating_add(by_ms);
        }
    }

    /// How many of those begun wait for an answer that is long overdue. Takes in what was told meanwhile.
    pub(super) fn waiting(&mut self, now_ms: i64) -> usize {
        let is_told = |load: &Load| load.told.load(Ordering::Relaxed);
        let told: Vec<TableName> =
            self.loading.iter().filter(|(_, load)| is_told(load)).map(|(name, _)| name.clone()).collect();
        told.iter().for_each(|name| {
            self.loading.remove(name);
            self.told_of(name, now_ms);
        });
        let stuck = self.loading.iter().filter(|(_, load)| is_long(load.since_ms, now_ms));
        let stuck: Vec<&TableName> = stuck.map(|(name, _)| name).collect();
        for name in &stuck {
            let voices = self.catalogs.entry(name.catalog.clone()).or_default();
            if voices.quiet(now_ms) {
                voices.hear_nothing_of(name);
            }
        }
        stuck.len()
    }

    /// The catalogs that are silent; `tables` says how many tables one has.
    pub(super) fn silent_catalogs(&mut self, tables: impl Fn(&str) -> usize) -> BTreeSet<String> {
        // Counting tables is worth it only where one is silent.
        for (catalog, voices) in self.catalogs.iter_mut().filter(|(_, voices)| !voices.silent.is_empty()) {
            let others = tables(catalog).saturating_sub(voices.alone.len());
            voices.down |= voices.silent.len() >= AGREE.min(others).max(1);
        }
        let down = self.catalogs.iter().filter(|(_, voices)| voices.down);
        down.map(|(catalog, _)| catalog.clone()).collect()
    }
}

impl Voices {
    /// Whether it has told of no table for long.
    fn quiet(&self, now_ms: i64) -> bool {
        self.told_ms.is_none_or(|told_ms| is_long(told_ms, now_ms))
    }

    fn hear_nothing_of(&mut self, name: &TableName) {
        if self.silent.len() < AGREE && !self.alone.contains(name) {
            self.silent.insert(name.clone());
        }
    }
}

fn is_long(since_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(since_ms) >= i64::try_from(SILENT_AFTER.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        name.parse().expect("a name")
    }

    fn silent(silence: &mut Silence, tables: usize) -> Vec<String> {
        silence.silent_catalogs(|_| tables).into_iter().collect()
    }

    #[test]
    fn tables_that_hang_do_not_speak_for_a_catalog_that_tells_of_others() {
        let mut silence = Silence::default();
        let bad = ["a", "b", "c", "d"].map(|name| table(&format!("lake.db.{name}")));
        let good = table("lake.db.good");
        for name in &bad {
            silence.begin(name, 0);
        }
        for round in 1..200 {
            let now = round * 1000;
            let told = silence.begin(&good, now);
            let waiting = silence.waiting(now);
            assert_eq!(waiting, if round < 20 { 0 } else { bad.len() }, "they hold no worker once they are silent");
            assert_eq!(silent(&mut silence, 9), ["lake"; 0]);
            assert!(silence.admits(&good) && silence.admits(&bad[0]));
            told.store(true, Ordering::Relaxed);
            silence.waiting(now + 500);
            silence.end(&good, false, now + 600);
        }
        for name in &bad {
            silence.end(name, true, 199_700);
        }
        assert_eq!(silent(&mut silence, 9), ["lake"; 0]);
    }

    #[test]
    fn tables_that_agree_make_a_silent_catalog_and_one_answer_ends_that() {
        let mut silence = Silence::default();
        let names = ["a", "b", "c", "d"].map(|name| table(&format!("lake.db.{name}")));
        let other = table("pond.db.x");
        for name in &names[..3] {
            silence.begin(name, 0);
        }
        assert_eq!((silence.waiting(19_999), silent(&mut silence, 9)), (0, vec![]));
        assert_eq!((silence.waiting(20_000), silent(&mut silence, 9)), (3, vec!["lake".to_owned()]));
        assert!(silence.admits(&names[3]) && silence.admits(&other));
        let probe = silence.begin(&names[3], 21_000);
        assert!(!silence.admits(&names[0]) && silence.admits(&other), "one at a time");
        silence.end(&names[0], true, 21_500);
        assert!(!silence.admits(&names[0]), "the probe is still waited for");
        probe.store(true, Ordering::Relaxed);
        assert_eq!(silence.waiting(22_000), 2, "two of the first three");
        assert!(silence.admits(&names[0]), "the catalog has told of a table");
        assert_eq!(silent(&mut silence, 9), ["lake"; 0]);
    }

    #[test]
    fn a_clock_that_is_set_makes_no_catalog_silent_and_keeps_none_from_being_so() {
        for by_ms in [-90_000_000, 90_000_000] {
            let mut silence = Silence::default();
            let names = ["a", "b", "c"].map(|name| table(&format!("lake.db.{name}")));
            silence.told("lake", 0);
            for name in &names {
                silence.begin(name, 1000);
            }
            silence.clock_set(by_ms);
            assert_eq!((silence.waiting(by_ms + 2000), silent(&mut silence, 9)), (0, vec![]));
            assert_eq!((silence.waiting(by_ms + 21_000), silent(&mut silence, 9)), (3, vec!["lake".to_owned()]));
        }
    }

    #[test]
    fn a_failed_probe_makes_room_for_the_next_one() {
        let mut silence = Silence::default();
        let names = ["a", "b", "c"].map(|name| table(&format!("lake.db.{name}")));
        silence.told("lake", 0);
        for name in &names {
            silence.begin(name, 1);
            silence.end(name, true, 2);
        }
        assert_eq!(silent(&mut silence, 3), ["lake"], "an error that says unavailable is no answer either");
        silence.begin(&names[0], 3);
        assert!(!silence.admits(&names[1]));
        silence.end(&names[0], true, 4);
        assert!(silence.admits(&names[1]));
        assert_eq!(silent(&mut silence, 3), ["lake"]);
        silence.begin(&names[1], 5);
        silence.end(&names[1], false, 6);
        assert_eq!(silent(&mut silence, 3), ["lake"; 0]);
    }

    #[test]
    fn all_tables_of_a_small_catalog_are_enough() {
        for tables in [1, 2] {
            let mut silence = Silence::default();
            for at in 0..tables {
                assert_eq!(silent(&mut silence, tables), ["lake"; 0]);
                let name = table(&format!("lake.db.t{at}"));
                silence.begin(&name, 0);
                silence.end(&name, true, 1);
            }
            assert_eq!(silent(&mut silence, tables), ["lake"]);
        }
    }

    #[test]
    fn who_was_silent_while_others_were_told_of_says_nothing_of_the_catalog_until_it_is_told_of() {
        let mut silence = Silence::default();
        let bad = ["a", "b", "c"].map(|name| table(&format!("lake.db.{name}")));
        let good = ["x", "y", "z"].map(|name| table(&format!("lake.db.{name}")));
        let hear_nothing = |silence: &mut Silence, names: &[TableName], at_ms| {
            for name in names {
                silence.begin(name, at_ms);
                silence.end(name, true, at_ms + 1);
            }
        };
        hear_nothing(&mut silence, &bad, 0);
        silence.begin(&good[0], 2);
        silence.end(&good[0], false, 3);
        // Nothing else is due for hours.
        for at_ms in [1_000_000, 2_000_000] {
            hear_nothing(&mut silence, &bad, at_ms);
            assert_eq!(silent(&mut silence, 6), ["lake"; 0]);
        }
        hear_nothing(&mut silence, &good, 3_000_000);
        assert_eq!(silent(&mut silence, 6), ["lake"], "these were told of");
        silence.begin(&bad[0], 4_000_000);
        silence.end(&bad[0], false, 4_000_001);
        assert_eq!(silent(&mut silence, 6), ["lake"; 0]);
        silence.table_gone(&bad[1]);
        hear_nothing(&mut silence, &bad, 5_000_000);
        assert_eq!(silent(&mut silence, 2), ["lake"], "one was told of meanwhile, and one is another table");
    }

    #[test]
    fn a_table_agrees_with_others_and_not_with_itself() {
        let mut silence = Silence::default();
        let bad = table("lake.db.bad");
        for at in 0..10 {
            silence.begin(&bad, at);
            silence.end(&bad, true, at);
        }
        assert_eq!(silent(&mut silence, 9), ["lake"; 0]);
    }
}
