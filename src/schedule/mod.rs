//! When and in which order things happen. [`run_table`] tells the story of one run; [`scheduler`] is the one endless loop.

pub mod collector;
pub mod control;
pub mod due;
mod entry;
pub mod observer;
pub mod plan_table;
pub mod run_table;
pub mod scheduler;
pub mod settings;
mod silence;
mod wall_clock;
mod worker;
