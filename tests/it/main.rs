//! All integration tests, in one binary so that it is linked once.

mod inspect;
mod plan_changes;
mod plan_layouts;
mod plan_properties;
mod plan_support;
