//! The image's recipe. There is no engine to build it with; these are the mistakes that can be seen without one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{pass, read, root};
use crate::interop::process::{ICEWRIGHT, installed};

const DOCKERFILE: &str = "deploy/Dockerfile";

/// Instructions with their continuation lines.
fn instructions() -> Vec<String> {
    let text = read(DOCKERFILE).replace("\\\n", "");
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

/// What a build sees of the repository.
fn context() -> BTreeSet<String> {
    let ignore = read("deploy/Dockerfile.dockerignore");
    assert!(ignore.starts_with("*\n"));
    ignore.lines().filter_map(|line| line.strip_prefix('!')).map(str::to_owned).collect()
}

#[test]
fn hadolint_has_nothing_to_say() {
    pass(Command::new(installed("kube/bin/hadolint")).arg(root().join(DOCKERFILE)), b"");
}

#[test]
fn the_image_is_small_and_runs_as_nobody() {
    let text = instructions().join("\n");
    assert!(text.contains("\nUSER 65532:65532\n"));
    assert!(!text.contains(":latest"));
    let last = text.split("\nFROM ").last().expect("a stage");
    assert!(last.starts_with("${BASE}") && !last.contains("RUN "), "nothing runs in what has no shell:\n{last}");
    assert_eq!(last.matches("COPY ").count(), 1, "the binary and nothing else");
    let version = format!("ARG BUILDER=rust:{}", env!("CARGO_PKG_RUST_VERSION"));
    assert!(text.starts_with(&version), "{version}");
}

#[test]
fn everything_that_is_copied_is_there_and_is_all_that_the_build_needs() {
    let copied: BTreeSet<String> = instructions()
        .iter()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|rest| !rest.starts_with("--from"))
        .flat_map(|rest| {
            let words: Vec<&str> = rest.split_whitespace().collect();
            words[..words.len() - 1].iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(copied, context());
    for path in &copied {
        assert!(root().join(path).exists(), "{path}");
    }
    if root().join("build.rs").exists() {
        assert!(copied.contains("build.rs"), "cargo runs it");
    }
    // Each bench that Cargo.toml names must exist, or cargo refuses to start.
    let text = instructions().join("\n");
    for bench in read("Cargo.toml").split("[[bench]]\nname = \"").skip(1) {
        let name = bench.split('"').next().expect("a name");
        assert!(text.contains(&format!("benches/{name}.rs")), "{name}");
    }
    let mut included = 0;
    includes(&root().join("src"), &mut included);
}

/// Files that the sources take in must lie below `src`.
fn includes(folder: &Path, seen: &mut usize) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            includes(&path, seen);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.to_string_lossy().contains("tests") {
            let text = std::fs::read_to_string(&path).expect("source");
            for part in text.split("include_").skip(1) {
                let Some((_, file)) = part.split_once("!(\"").filter(|(kind, _)| ["str", "bytes"].contains(kind))
                else {
                    continue;
                };
                *seen += 1;
                let target = folder.join(file.split('"').next().expect("a path"));
                let target = target.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", target.display()));
                assert!(
                    target.starts_with(root().join("src")),
                    "{}: the image's build has no {file:.60}",
                    path.display()
                );
            }
        }
    }
}

/// What `cc` images hold beside certificates: glibc and libgcc.
#[test]
fn the_binary_needs_only_libraries_that_the_base_holds() {
    let linked = pass(Command::new("ldd").arg(ICEWRIGHT), b"");
    let names: Vec<&str> = linked.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"libc.so.6"), "{linked}");
    let known = ["linux-vdso.so.1", "libgcc_s.so.1", "libm.so.6", "libc.so.6"];
    for name in names {
        assert!(known.contains(&name) || name.contains("ld-linux"), "{name} is not in the image");
    }
}
