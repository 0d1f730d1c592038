//! icewright keeps Apache Iceberg tables healthy.
//!
//! Data flows one way: facts, policies and plans below, actions above them, then the schedule, and reports that listen. ARCHITECTURE.md in
//! the root of the repository is the map, and `tests/it/architecture/` holds it.

pub mod action;
pub mod actions;
pub mod allocator;
pub mod backoff;
pub mod catalog;
pub mod clean;
pub mod cli;
pub mod clock;
pub mod commit;
pub mod concurrent;
pub mod config;
pub mod daemon;
pub mod error;
pub mod fleet;
pub mod http_client;
pub mod inspect;
pub mod leader;
pub mod meta;
pub mod permit;
pub mod plan;
pub mod policy;
pub mod reload;
pub mod report;
pub mod rewrite;
pub mod run_id;
pub mod sandbox;
pub mod schedule;
pub mod server;
pub mod storage;
pub mod table;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod version;
