//! All integration tests, in one binary so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test may fail where it likes")]

mod rest_client;
mod storage_local;
mod storage_s3;
mod support;
