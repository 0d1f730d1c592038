//! All integration tests, in one binary so that it is linked once.

mod rest_client;
mod storage_local;
mod embedded_catalog;
mod support;
mod plan_layouts;
mod plan_properties;
mod plan_support;
mod interop;
