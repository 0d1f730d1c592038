//! What the commands do.

pub mod check;
