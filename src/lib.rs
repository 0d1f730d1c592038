//! icewright keeps Apache Iceberg tables healthy.
//!
//! `config -> policy -> inspect -> plan -> rewrite -> commit -> report`: data flows one way.

pub mod catalog;
pub mod cli;
pub mod clock;
pub mod commit;
pub mod config;
pub mod error;
pub mod inspect;
pub mod meta;
pub mod plan;
pub mod policy;
pub mod report;
pub mod rewrite;
pub mod run_id;
pub mod server;
pub mod storage;
pub mod table;
