//! The settings of the C library's allocator. glibc gives each thread an arena of its own, up to eight for each core, and an
//! arena keeps what was freed in it. A rewrite's buffers are large and its threads change, so that within a few runs the
//! process holds several times what it uses. With one arena it holds what it uses, and takes no more time.
//!
//! glibc reads the setting when a program starts and at no other time (short of a call that is not safe), so the program
//! starts itself once more with it. Other C libraries do not know the setting, and need none.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// glibc's number of arenas; whoever sets it before the start knows better.
const ARENAS: &str = "MALLOC_ARENA_MAX";
/// Set by the first start. A program with file capabilities or another user's rights loses [`ARENAS`] when it starts; without
/// this it would start itself for ever.
const STARTED: &str = "ICEWRIGHT_STARTED_WITH_ONE_ARENA";

/// Starts the program anew with one arena if nothing says how many it may have. Returns if that is not needed, or not possible:
/// the program then works as well and takes more memory.
pub fn use_one_arena() {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) || is_set(|name| std::env::var_os(name)) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    if is_loader(&program) {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    // Comes back only if the program cannot be started.
    let _ = Command::new(program).arg0(name).args(arguments).env(ARENAS, "1").env(STARTED, "1").exec();
}

/// Whether the number of arenas was chosen, in either of the two ways, or this is the second start.
fn is_set(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let tunables = variable("GLIBC_TUNABLES").unwrap_or_default();
    [ARENAS, STARTED].into_iter().any(|name| variable(name).is_some())
        || tunables.to_string_lossy().contains("glibc.malloc.arena_max")
}

/// Whether the system takes the dynamic loader for the running program (`ld-linux-x86-64.so.2 icewright run`). To start that
/// with this program's arguments would start something else.
fn is_loader(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-") || name.starts_with("ld.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_chose_a_number_of_arenas_keeps_it() {
        let set = |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.into());
        assert!(!is_set(|_| None));
        assert!(is_set(set(ARENAS, "4")));
        assert!(is_set(set("GLIBC_TUNABLES", "glibc.malloc.check=1:glibc.malloc.arena_max=4")));
        assert!(!is_set(set("GLIBC_TUNABLES", "glibc.malloc.check=1")));
    }

    #[test]
    fn a_start_that_lost_the_setting_is_the_last() {
        let second_start = |name: &str| (name == STARTED).then(|| "1".into());
        assert!(is_set(second_start));
    }

    #[test]
    fn the_dynamic_loader_is_not_started_with_this_programs_arguments() {
        for loader in ["/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/ld-2.31.so", "/usr/bin/ld.so"] {
            assert!(is_loader(Path::new(loader)), "{loader}");
        }
        assert!(!is_loader(Path::new("/usr/local/bin/icewright")));
    }
}
