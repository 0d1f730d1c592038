//! Which build this is; `build.rs` finds it out.

/// The version of the package, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, twelve digits; `+dev` behind it for builds that may hold more; or `unknown`.
pub const REVISION: &str = env!("ICEWRIGHT_BUILD_REVISION");
/// The version of the compiler, such as `1.95.0`, or `unknown`.
pub const RUSTC: &str = env!("ICEWRIGHT_BUILD_RUSTC");
/// Everything that `--version` says.
pub const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("ICEWRIGHT_BUILD_REVISION"),
    ", rustc ",
    env!("ICEWRIGHT_BUILD_RUSTC"),
    ")"
);
