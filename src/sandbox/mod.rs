//! What it takes to try icewright without any other service: a catalog over a local directory, and live writers.

pub mod catalog;
pub(crate) mod untyped;
pub mod writers;
