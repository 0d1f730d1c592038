//! What happened, for people and machines. Job: run outcomes and table statistics -> metrics and reports.
//! It changes nothing and decides nothing.

pub mod board;
mod catalogs;
pub mod events;
pub mod health;
mod kept;
pub mod metrics;
pub mod probes;
pub mod push;
pub mod vitals;
