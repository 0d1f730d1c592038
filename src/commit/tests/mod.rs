//! Commits against a catalog that races, refuses and loses answers.

mod expire;
mod replace;
mod settle;
mod validate;
mod world;
