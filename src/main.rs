//! The `icewright` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    icewright::cli::main()
}
