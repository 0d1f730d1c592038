//! Runs and the loop that starts them, on stores and catalogs in memory, with real Parquet files and simulated time.

mod control;
mod fleet;
mod rewrite;
mod scheduler;
mod shutdown;
mod world;
