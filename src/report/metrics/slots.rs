//! Which tables have series of their own, and what the others add up to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::table::TableName;

/// The label value that stands for the tables without series of their own.
pub(super) const OTHER: &str = "_other";

/// A table's share of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesSlot {
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
    /// The catalogs that have or had folded tables with values, and how many values these had at most.
    folded: BTreeMap<String, usize>,
    /// Catalogs that go as soon as their last table does.
    going: BTreeSet<String>,
}

impl Slots {
    pub(super) fn new(max: usize) -> Self {
        Self { max, tables: HashMap::new(), own: 0, folded: BTreeMap::new(), going: BTreeSet::new() }
    }

    pub(super) fn own(&self) -> usize {
        self.own
    }

    pub(super) fn other(&self) -> usize {
        self.tables.len() - self.own
    }

    pub(super) fn get(&self, table: &TableName) -> Option<SeriesSlot> {
        self.tables.get(table).map(|values| if values.is_some() { SeriesSlot::Other } else { SeriesSlot::Own })
    }

    /// The table's slot: its own if it has or can have one.
    pub(super) fn assign(&mut self, table: &TableName) -> SeriesSlot {
        match self.get(table) {
            Some(slot) if slot == SeriesSlot::Own || self.own >= self.max => slot,
            None if self.own >= self.max => {
                self.tables.insert(table.clone(), Some(Vec::new()));
                SeriesSlot::Other
            }
            Some(_) | None => {
                self.tables.insert(table.clone(), None);
                self.own += 1;
                SeriesSlot::Own
            }
        }
    }

    /// Forgets a table; its values leave the totals.
    pub(super) fn remove(&mut self, table: &TableName) -> Option<SeriesSlot> {
        let slot = self.get(table)?;
        self.own -= usize::from(slot == SeriesSlot::Own);
        self.tables.remove(table);
        Some(slot)
    }

    /// Replaces the values of a folded table from `first` on.
    pub(super) fn set_values(&mut self, table: &TableName, first: usize, new: &[f64]) {
        let Some(Some(values)) = self.tables.get_mut(table) else { return };
        let end = first + new.len();
        values.resize(values.len().max(end), 0.0);
        values[first..end].copy_from_slice(new);
        let most = self.folded.entry(table.catalog.clone()).or_default();
        *most = (*most).max(end);
    }

    /// What the values of folded tables add up to, by catalog.
    pub(super) fn totals(&self) -> BTreeMap<&str, Vec<f64>> {
        let mut totals: BTreeMap<_, _> =
            self.folded.iter().map(|(catalog, values)| (catalog.as_str(), vec![0.0; *values])).collect();
        for (table, values) in &self.tables {
            let Some(total) = totals.get_mut(table.catalog.as_str()) else { continue };
            total.iter_mut().zip(values.iter().flatten()).for_each(|(total, value)| *total += value);
        }
        totals
    }

    /// The catalog is no longer configured; steps on its tables may still run.
    pub(super) fn catalog_goes(&mut self, catalog: &str) {
        self.going.insert(catalog.to_owned());
    }

    pub(super) fn catalog_stays(&mut self, catalog: &str) {
        self.going.remove(catalog);
    }

    /// Forgets a catalog's totals if it goes and has no tables left; whether that is so.
    pub(super) fn forget_totals(&mut self, catalog: &str) -> bool {
        let over = self.going.contains(catalog) && !self.tables.keys().any(|table| table.catalog == catalog);
        if over {
            self.going.remove(catalog);
            self.folded.remove(catalog);
        }
        over
    }
}
