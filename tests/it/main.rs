//! All integration tests, in one binary so that it is linked once.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and the panic says where")]

mod architecture;
mod build_script;
mod clean;
mod clean_layouts;
mod cli;
mod cli_shell;
mod config_advice;
mod config_files;
mod deploy;
mod docs;
mod embedded_catalog;
mod http;
mod inspect;
mod interop;
mod json;
mod leader;
mod metrics_page;
mod observability;
mod once;
mod page;
mod plan_changes;
mod plan_layouts;
mod plan_properties;
mod plan_support;
mod pushgateway;
mod reload;
mod resident_memory;
mod rest_client;
mod rest_observed;
mod rest_tokens;
mod rewrite;
mod schedule;
mod storage_local;
mod storage_s3;
mod supply_chain;
mod support;
mod telemetry;
mod terminal;
