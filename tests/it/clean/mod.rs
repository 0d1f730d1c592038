//! The actions that delete: every guard has a test that fails without it.

mod expire;
mod guards;
mod orphans;
mod untyped;
mod world;
