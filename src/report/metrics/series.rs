//! How many series there are, by the definitions, and the table of the documentation.

use std::fmt::Write;
use std::sync::OnceLock;

use super::Metrics;
use super::definitions::{self, ALL, Definition, MetricKind, OPERATIONS};
use super::operating_system::ProcessMetrics;
use crate::action::{Action, Doing, Outcome, Phase};
use crate::inspect::TableStats;
use crate::report::health::ReasonKind;

/// Series at most. With `t` tables that have their own, `c` configured catalogs, of which `o` have more tables than that:
/// `t x table + c x catalog + o x other + process`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Of a table with series of its own.
    pub table: usize,
    /// Of a configured catalog.
    pub catalog: usize,
    /// Of all folded tables of a catalog together.
    pub other: usize,
    /// Of the process, whatever its tables.
    pub process: usize,
}

impl Cardinality {
    /// As the definitions say.
    pub fn of_definitions() -> Self {
        let mut sum = Self::default();
        for definition in ALL {
            let series = extra_labels(definition).len() * definition.series();
            if !definition.is_of_table() {
                let share = if definition.labels == ["catalog"] { &mut sum.catalog } else { &mut sum.process };
                *share += series;
                continue;
            }
            sum.table += series;
            if definition.kind != MetricKind::Gauge || definition.adds_up() {
                sum.other += series;
            }
        }
        sum.process += ProcessMetrics::SERIES;
        sum
    }
}

impl std::fmt::Display for Cardinality {
    /// The formula, in the words of the configuration.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, catalog, other, process } = self;
        write!(
            f,
            "{table} x min(tables, max-tables) + {catalog} x catalogs + {other} x catalogs with tables beyond max-tables + {process}"
        )
    }
}

impl Metrics {
    /// All metrics as a table for the documentation.
    pub fn markdown_table() -> String {
        let mut table = "| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n".to_owned();
        for Definition { name, kind, labels, unit, help } in ALL {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(table, "| `{name}` | {} | {} | {unit} | {help} |", kind.as_str(), labels.join(", "));
        }
        table
    }
}

/// The gauges that folded tables share, each with its label beyond the table's: the order in which their values are kept.
/// Behind them come the buckets of file sizes.
pub(super) fn folded() -> &'static [(&'static Definition, Option<&'static str>)] {
    static FOLDED: OnceLock<Vec<(&Definition, Option<&str>)>> = OnceLock::new();
    FOLDED.get_or_init(|| {
        let shared = ALL.iter().filter(|d| d.kind == MetricKind::Gauge && d.is_of_table() && d.adds_up());
        shared.flat_map(|d| extra_labels(d).into_iter().map(|extra| (*d, extra.first().copied()))).collect()
    })
}

/// Every combination of the values that labels can have beside those that name a table or catalog. Never empty.
pub(super) fn extra_labels(definition: &Definition) -> Vec<Vec<&'static str>> {
    if definition.name == definitions::RUN_PHASE_DURATION.name {
        let of_action = |action: Action| action.phases().iter().map(move |phase| vec![action.as_str(), phase.as_str()]);
        return Action::ALL.into_iter().flat_map(of_action).collect();
    }
    let mut combinations = vec![Vec::new()];
    for label in definition.labels.iter().filter(|label| !matches!(**label, "catalog" | "namespace" | "table")) {
        combinations = combinations
            .iter()
            .flat_map(|start: &Vec<&'static str>| {
                let values = values_of(definition, label).into_iter();
                values.map(|value| start.iter().copied().chain([value]).collect())
            })
            .collect();
    }
    combinations
}

fn values_of(definition: &Definition, label: &str) -> Vec<&'static str> {
    let deletes = [definitions::DELETED_FILES.name, definitions::DELETED_BYTES.name];
    match label {
        "action" if deletes.contains(&definition.name) => {
            let deleting = Action::ALL.iter().filter(|action| action.phases().contains(&Phase::Delete));
            deleting.map(|action| action.as_str()).collect()
        }
        "action" => Action::ALL.iter().map(|action| action.as_str()).collect(),
        "outcome" if definition.name == definitions::REQUESTS.name => definitions::request_outcomes(),
        "outcome" if definition.name == definitions::CONFIG_RELOADS.name => vec!["success", "failed"],
        "outcome" => Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect(),
        "operation" => OPERATIONS.to_vec(),
        "step" => Doing::all().into_iter().map(Doing::as_str).collect(),
        "reason" => ReasonKind::ALL.iter().map(|kind| kind.as_str()).collect(),
        "series" => vec!["own", "other"],
        "content" => {
            let samples = definitions::of_stats(&TableStats::default()).into_iter();
            samples.filter(|(d, ..)| d.name == definition.name).filter_map(|(_, content, _)| content).collect()
        }
        // Each has one value in a process: version, revision, compiler.
        _ => vec![""],
    }
}
