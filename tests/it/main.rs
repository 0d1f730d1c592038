//! All integration tests, in one binary so that it is linked once.

mod rewrite;
