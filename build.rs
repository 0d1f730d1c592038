//! Tells the program which commit and compiler made it, by environment variables that `src/version.rs` reads.
//!
//! `ICEWRIGHT_REVISION` names the commit where no repository is at hand, as in an image build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ICEWRIGHT_REVISION");
    let given = env::var("ICEWRIGHT_REVISION").ok().filter(|text| !text.is_empty());
    let revision = given.or_else(revision).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=ICEWRIGHT_BUILD_REVISION={revision}");

    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    // `rustc 1.95.0 (59807616e 2026-03-21)`: the second word.
    let version = output(&rustc, &["--version"]).and_then(|text| text.split(' ').nth(1).map(str::to_owned));
    println!("cargo:rustc-env=ICEWRIGHT_BUILD_RUSTC={}", version.as_deref().unwrap_or("unknown"));
}

/// The commit that is checked out. Release builds follow each commit. Others would be built again only for this: they follow
/// changes of the branch, and `+dev` says that they hold more than the commit.
fn revision() -> Option<String> {
    let root = env::var("CARGO_MANIFEST_DIR").ok()?;
    // A repository around an unpacked archive is somebody else's.
    if Path::new(&output("git", &["rev-parse", "--show-toplevel"])?) != Path::new(&root) {
        return None;
    }
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    // To cargo, a file that is not there has always changed.
    let watch = |path: &Path| println!("cargo:rerun-if-changed={}", path.display());
    let git_path = |name: &str| output("git", &["rev-parse", "--git-path", name]).map(PathBuf::from);
    watch(&git_path("HEAD")?);
    if env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return Some(format!("{commit}+dev"));
    }
    if let Some(branch) = output("git", &["symbolic-ref", "--quiet", "HEAD"]) {
        // A packed branch has no file until its next commit, which makes one in a directory that is there.
        git_path(&branch)?.ancestors().find(|path| path.exists()).map(watch);
        git_path("packed-refs").filter(|path| path.exists()).as_deref().map(watch);
    }
    Some(commit)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
