//! What each command does.

pub mod catalog;
