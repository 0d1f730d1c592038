//! Doubles for tests and benches: a store and a catalog in memory, with faults and races on demand.
//! The feature `testing` brings them; the shipped program is built without it.

pub mod builder;
pub mod faulty_store;
pub mod memory_catalog;
pub mod memory_store;
pub mod set_clock;

pub use faulty_store::{FaultyStore, Operation, StoreFault};
pub use memory_catalog::{Answer, CommitFault, CommitRequest, Delivery, Meanwhile, MemoryCatalog};
pub use memory_store::{ListOrder, MemoryStore};
pub use set_clock::SetClock;

#[cfg(test)]
mod tests;
