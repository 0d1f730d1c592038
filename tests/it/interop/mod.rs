//! The daemon's own binary against programs that no one here wrote: tables made by the Iceberg Java library, judged by
//! Java, DuckDB and PyIceberg, with PyIceberg and DuckDB writing beside the daemon, on the local file system and on
//! SeaweedFS. `tests/interop/setup.sh` installs all of them; without it these tests fail.
//!
//! Tables lie in a folder of the test. Nothing is shared between tests, so they run side by side.

mod concurrent;
mod crash;
mod lake;
mod maintain;
pub(crate) mod process;
pub(crate) mod proxy;
mod s3;
mod values;
