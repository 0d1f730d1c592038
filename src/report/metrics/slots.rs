//! Which tables have series of their own, and what the others add up to.

use std::collections::{BTreeSet, HashMap};

use crate::table::TableName;

/// The label value that stands for the tables without series of their own.
pub(super) const OTHER: &str = "_other";

/// A table's share of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// It has its own.
    Own,
    /// It is folded into the others of its catalog.
    Other,
}

/// First come, first served; a table that goes makes room for the next one that reports.
pub(super) struct Slots {
    max: usize,
    /// `None`: own series. `Some`: folded, with its last values.
    tables: HashMap<TableName, Option<Vec<f64>>>,
    own: usize,
    /// Sums of the folded tables' values by catalog.
    totals: HashMap<String, Vec<f64>>,
    /// Catalogs whose sums have changed since they were shown.
    changed: BTreeSet<String>,
    /// Catalogs that go as soon as their last table does.
    going: BTreeSet<String>,
}

impl Slots {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            tables: HashMap::new(),
            own: 0,
            totals: HashMap::new(),
            changed: BTreeSet::new(),
            going: BTreeSet::new(),
        }
    }

    pub(super) fn own(&self) -> usize {
        self.own
    }

    pub(super) fn other(&self) -> usize {
        self.tables.len() - self.own
    }

    pub(super) fn get(&self, table: &TableName) -> Option<Slot> {
        self.tables.get(table).map(|values| if values.is_some() { Slot::Other } else { Slot::Own })
    }

    /// The table's slot: its own if it has or can have one.
    pub(super) fn assign(&mut self, table: &TableName) -> Slot {
        match self.get(table) {
            Some(Slot::Own) => Slot::Own,
            Some(Slot::Other) if self.own >= self.max => Slot::Other,
            None if self.own >= self.max => {
                self.tables.insert(table.clone(), Some(Vec::new()));
                Slot::Other
            }
            Some(Slot::Other) | None => {
                self.remove(table);
                self.tables.insert(table.clone(), None);
                self.own += 1;
                Slot::Own
            }
        }
    }

    /// Forgets a table; its values leave the totals.
    pub(super) fn remove(&mut self, table: &TableName) -> Option<Slot> {
        match self.tables.remove(table)? {
            None => {
                self.own -= 1;
                Some(Slot::Own)
            }
            Some(values) => {
                self.add(&table.catalog, 0, values.iter().map(|value| -value));
                Some(Slot::Other)
            }
        }
    }

    /// Replaces the values of a folded table from `first` on.
    pub(super) fn set_values(&mut self, table: &TableName, first: usize, new: &[f64]) {
        let Some(Some(values)) = self.tables.get_mut(table) else { return };
        if values.len() < first + new.len() {
            values.resize(first + new.len(), 0.0);
        }
        let changes: Vec<f64> = values[first..].iter().zip(new).map(|(old, new)| new - old).collect();
        values[first..first + new.len()].copy_from_slice(new);
        self.add(&table.catalog, first, changes.into_iter());
    }

    pub(super) fn totals(&self, catalog: &str) -> &[f64] {
        self.totals.get(catalog).map_or(&[], Vec::as_slice)
    }

    /// The catalogs whose totals have changed since this was last asked.
    pub(super) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// The catalog is no longer configured; steps on its tables may still run.
    pub(super) fn catalog_goes(&mut self, catalog: &str) {
        self.going.insert(catalog.to_owned());
    }

    /// The catalog is configured.
    pub(super) fn catalog_stays(&mut self, catalog: &str) {
        self.going.remove(catalog);
    }

    /// Forgets a catalog's totals if it goes and has no tables left; whether that is so.
    pub(super) fn forget_totals(&mut self, catalog: &str) -> bool {
        let over = self.going.contains(catalog) && !self.tables.keys().any(|table| table.catalog == catalog);
        if over {
            self.going.remove(catalog);
            self.totals.remove(catalog);
            self.changed.remove(catalog);
        }
        over
    }

    fn add(&mut self, catalog: &str, first: usize, changes: impl ExactSizeIterator<Item = f64>) {
        let totals = self.totals.entry(catalog.to_owned()).or_default();
        if totals.len() < first + changes.len() {
            totals.resize(first + changes.len(), 0.0);
        }
        for (total, change) in totals[first..].iter_mut().zip(changes) {
            *total += change;
        }
        if !self.changed.contains(catalog) {
            self.changed.insert(catalog.to_owned());
        }
    }
}
