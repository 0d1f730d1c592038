//! What several integration tests share.

pub(crate) mod command;
pub(crate) mod http_server;
