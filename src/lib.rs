//! icewright keeps Apache Iceberg tables healthy.
//!
//! `config -> policy -> inspect -> plan -> rewrite -> commit -> report`: data flows one way.

pub mod catalog;
pub mod clean;
pub mod cli;
pub mod clock;
pub mod commit;
pub mod config;
pub mod daemon;
pub mod error;
pub mod http_client;
pub mod inspect;
pub mod meta;
pub mod plan;
pub mod policy;
pub mod report;
pub mod rewrite;
pub mod run_id;
pub mod sandbox;
pub mod schedule;
pub mod server;
pub mod storage;
pub mod table;
pub mod telemetry;
pub mod testing;
