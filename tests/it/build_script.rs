//! What the build script asks cargo to watch: a file that is not there would make every build a new one.

use std::path::{Path, PathBuf};
use std::process::Command;

fn output(command: &mut Command) -> String {
    let output = command.output().expect("start it");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn git(dir: &Path, arguments: &str) {
    let mut git = Command::new("git");
    git.current_dir(dir).args(["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]);
    output(git.args(arguments.split(' ')));
}

#[test]
fn a_release_build_watches_what_is_there_and_what_the_next_commit_changes() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let dir = scratch.path().canonicalize().expect("a path");
    let script = dir.join("build-script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    output(Command::new("rustc").args(["--edition", "2024", "-o"]).arg(&script).arg(&source));
    std::fs::write(dir.join("build.rs"), "").expect("write");
    let watched = |profile: &str| -> Vec<PathBuf> {
        let mut build = Command::new(&script);
        build
            .current_dir(&dir)
            .env("CARGO_MANIFEST_DIR", &dir)
            .env("PROFILE", profile)
            .env_remove("ICEWRIGHT_REVISION");
        let said = output(&mut build);
        assert!(!said.contains("unknown"), "{said}");
        said.lines().filter_map(|line| line.strip_prefix("cargo:rerun-if-changed=")).map(PathBuf::from).collect()
    };
    git(&dir, "init --quiet");
    for packed in [false, true] {
        git(&dir, "commit --quiet --allow-empty --message m");
        if packed {
            git(&dir, "pack-refs --all");
        }
        for profile in ["debug", "release"] {
            for path in watched(profile) {
                assert!(dir.join(&path).exists(), "{profile}, packed {packed}: {path:?}");
            }
        }
        let release = watched("release");
        let branch = Path::new(".git/refs/heads/main");
        assert!(release.iter().any(|path| path != Path::new(".git") && branch.starts_with(path)), "{release:?}");
        assert_eq!(release.contains(&".git/packed-refs".into()), packed, "{release:?}");
    }
}
