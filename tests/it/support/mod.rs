//! What several integration tests share.

pub(crate) mod http_server;
pub(crate) mod lake;
