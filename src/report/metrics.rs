//! stub
#![allow(missing_docs)]
use crate::catalog::RequestObserver;
use crate::error::{ErrorKind, Result};
use crate::inspect::TableStats;
use crate::policy::TableName;
use crate::report::run_report::RewriteReport;
use crate::schedule::due::{NextStep, Step};
use crate::schedule::run_table::CleanUpReport;
pub struct Metrics {}
impl Metrics {
    pub fn new(_max: usize) -> Result<Self> { Ok(Self {}) }
    pub fn record_stats(&self, _n: &TableName, _s: &TableStats) {}
    pub fn keep_only(&self, _c: &str, _n: &[TableName]) {}
    pub fn forget_table(&self, _n: &TableName) {}
    pub fn record_wait(&self, _n: &TableName, _x: &NextStep, _f: u32) {}
    pub fn record_step(&self, _n: &TableName, _s: Step) {}
    pub fn record_rewrite(&self, _n: &TableName, _r: &RewriteReport) {}
    pub fn record_clean_up(&self, _n: &TableName, _r: &CleanUpReport) {}
    pub fn record_step_failure(&self, _n: &TableName, _k: ErrorKind) {}
}
impl RequestObserver for Metrics { fn observe(&self, _o: &'static str, _x: &'static str, _s: f64) {} }
