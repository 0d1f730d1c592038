//! Runs and the loop that starts them, on stores and catalogs in memory, with real Parquet files and simulated time.

mod bad_neighbours;
mod clock;
mod control;
mod errors;
mod fleet;
mod lying;
mod neighbours;
mod reload;
mod rewrite;
pub(crate) mod scheduler;
mod shutdown;
mod silence;
mod untyped;
pub(crate) mod world;
