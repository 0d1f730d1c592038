//! Reading manifests: this project's reader beside the library's, which decodes Avro into values of its own first.
//!
//! `cargo bench --bench manifests`; `ICEWRIGHT_BENCH_FILES` (100,000) data files in manifests of 10,000, each with metrics of
//! `ICEWRIGHT_BENCH_COLUMNS` (20) columns, read `ICEWRIGHT_BENCH_ROUNDS` (3) times. What a round has read is held to its end.

#[allow(dead_code, reason = "other benches rewrite; this one only reads")]
mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iceberg::spec::{
    DataContentType, Datum, FormatVersion, Manifest, ManifestContentType, ManifestStatus, PartitionSpec, Schema, Struct,
};
use icewright::meta::{read_all_manifest_paths, read_manifest, read_manifest_list_at};
use icewright::testing::builder::{content_file, library_manifest, library_manifest_list, manifest_entry};
use serde_json::{Value, json};
use support::{Directory, number};

const FILES_PER_MANIFEST: u64 = 10_000;
const SNAPSHOT: i64 = 1;

fn main() {
    if support::run_if_child(run) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (files, rounds) = (number("ICEWRIGHT_BENCH_FILES", 100_000), rounds());
    support::measure("generate", directory.path());
    println!("{files} files with metrics of {} columns, {rounds} rounds", columns());
    println!("{:<28}{:>9}{:>9}{:>11}{:>9}{:>14}", "", "wall s", "cpu s", "peak MiB", "in MiB", "files per s");
    let mut figures = Vec::new();
    for case in ["bytes alone", "icewright: paths", "icewright: entries", "library: entries"] {
        let m = support::measure(case, directory.path());
        assert!(case == "bytes alone" || m.bytes_out == files * rounds, "{case}: {} files were read", m.bytes_out);
        let (wall, cpu, peak, read) = (m.wall_seconds, m.cpu_seconds, m.peak_mib, m.bytes_in >> 20);
        println!("{case:<28}{wall:>9.2}{cpu:>9.2}{peak:>11.0}{read:>9}{:>14.0}", (files * rounds) as f64 / cpu);
        figures.push(m);
    }
    let [bytes, _, own, library] = figures.as_slice() else { unreachable!("four cases") };
    let times = (library.cpu_seconds - bytes.cpu_seconds) / (own.cpu_seconds - bytes.cpu_seconds);
    let memory = library.peak_mib / own.peak_mib;
    println!(
        "the library takes {times:.1} times the CPU, beyond that of reading the bytes, and {memory:.1} times the memory"
    );
}

fn rounds() -> u64 {
    number("ICEWRIGHT_BENCH_ROUNDS", 3)
}

fn columns() -> i32 {
    i32::try_from(number("ICEWRIGHT_BENCH_COLUMNS", 20)).expect("not that many columns")
}

fn fields() -> Value {
    (1..=columns()).map(|id| json!({"id": id, "name": format!("c{id}"), "required": false, "type": "long"})).collect()
}

fn list_path(directory: &Path) -> PathBuf {
    directory.join("snap-1.avro")
}

#[tokio::main(flavor = "current_thread")]
async fn run(case: &str, directory: &Path) -> (u64, u64, u64) {
    if case == "generate" {
        generate(directory).await;
        return (0, 0, 0);
    }
    let store = Directory::default();
    let loaded = support::table(directory, &fields());
    let list = list_path(directory).to_string_lossy().into_owned();
    let (manifests, _) = read_manifest_list_at(&store, &list).await.expect("a manifest list");
    let (mut bytes, mut files) = (0, 0);
    for _ in 0..rounds() {
        let (mut raw, mut paths, mut entries, mut library) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for manifest in &manifests {
            bytes += manifest.manifest_length.cast_unsigned();
            match case {
                "icewright: paths" => paths.extend(read_all_manifest_paths(&store, manifest).await.expect("paths")),
                "icewright: entries" => {
                    entries.extend(read_manifest(&store, &loaded, manifest).await.expect("entries"))
                }
                "library: entries" => {
                    let bytes = std::fs::read(&manifest.manifest_path).expect("a manifest");
                    library.extend(Manifest::parse_avro(&bytes).expect("a manifest").into_parts().0);
                }
                _ => raw.push(std::fs::read(&manifest.manifest_path).expect("a manifest")),
            }
        }
        files += (paths.len() + entries.len() + library.len()) as u64;
    }
    (bytes, files, store.requests.load(Ordering::Relaxed))
}

async fn generate(directory: &Path) {
    let schema: Schema =
        serde_json::from_value(json!({"type": "struct", "schema-id": 0, "fields": fields()})).expect("fields");
    let (schema, spec) = (Arc::new(schema), PartitionSpec::unpartition_spec());
    let files = number("ICEWRIGHT_BENCH_FILES", 100_000);
    let mut manifests = Vec::new();
    for first in (0..files).step_by(usize::try_from(FILES_PER_MANIFEST).expect("a count")) {
        let entries = (first..files.min(first + FILES_PER_MANIFEST)).map(|file| {
            let path =
                format!("s3://lake/db/table/data/{file:05}-0-0199e4c0-0000-7000-8000-000000000000-00001.parquet");
            let mut builder = content_file(DataContentType::Data, &path, Struct::empty(), 60_000, 6 << 20);
            let each = |value: u64| -> HashMap<i32, u64> { (1..=columns()).map(|id| (id, value + file)).collect() };
            let bound = |value: i64| -> HashMap<i32, Datum> {
                (1..=columns()).map(|id| (id, Datum::long(value + i64::from(id)))).collect()
            };
            builder.column_sizes(each(300_000)).value_counts(each(60_000)).null_value_counts(each(0));
            builder.lower_bounds(bound(file.cast_signed())).upper_bounds(bound((file + 60_000).cast_signed()));
            manifest_entry(ManifestStatus::Added, SNAPSHOT, None, builder.build().expect("a file"))
        });
        let path = directory.join(format!("m{first}.avro")).to_string_lossy().into_owned();
        let kind = (FormatVersion::V2, ManifestContentType::Data);
        let parts = (Arc::clone(&schema), spec.clone());
        let (manifest, bytes) = library_manifest(&path, kind, parts, (SNAPSHOT, 1), entries).await.expect("a manifest");
        std::fs::write(&path, bytes).expect("a writable directory");
        manifests.push(manifest);
    }
    let list = library_manifest_list(SNAPSHOT, None, 1, manifests).await.expect("a manifest list");
    std::fs::write(list_path(directory), list).expect("a writable directory");
}
