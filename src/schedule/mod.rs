//! When and in which order things happen. [`run_table`] tells the story of one run; [`scheduler`] is the one endless loop.

pub mod collector;
pub mod control;
pub mod due;
mod entry;
pub mod env;
pub mod fleet;
mod known;
mod listing;
pub mod neighbours;
pub mod observer;
pub mod plan_table;
pub mod rewrite_data_files;
pub mod run_report;
pub mod run_table;
mod run_time;
pub mod scheduler;
pub mod settings;
mod silence;
mod wall_clock;
mod worker;
