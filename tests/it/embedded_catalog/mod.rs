//! The embedded catalog, spoken to as any client would.

mod client;
mod commits;
mod durability;
mod names;
mod tables;
mod writers;
