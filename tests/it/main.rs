//! All integration tests, in one binary so that it is linked once.
mod config_files;
mod http;
