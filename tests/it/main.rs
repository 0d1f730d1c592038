//! All integration tests, in one binary so that it is linked once.

mod rest_client;
mod storage_local;
mod storage_s3;
mod support;
