//! The actions that delete: every guard has a test that fails without it.

mod candidates;
mod expire;
mod guards;
mod orphans;
mod other_names;
mod runs;
mod untyped;
mod world;
