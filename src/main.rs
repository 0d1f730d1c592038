//! The `icewright` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    icewright::allocator::use_one_arena();
    icewright::cli::main()
}
