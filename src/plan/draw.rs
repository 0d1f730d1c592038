//! A plan as a drawing: stable text for goldens and for people. One line per group, below it one line per file with a bar for
//! its size, and one line per reason for what was left alone.

use std::fmt;

use iceberg::spec::DataContentType;

use super::{FileGroup, RewritePlan, RewriteTask, Skipped};
use crate::table::FileEntry;
use crate::table::label::literal_text;

/// Characters of the longest bar.
const BAR: u64 = 20;
/// Files drawn of a group at most.
const MAX_FILES: usize = 40;
/// Delete files named per data file at most.
const MAX_DELETES: usize = 4;

impl fmt::Display for RewritePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { snapshot, groups, skipped, considered_data_files, dangling_delete_files } = self;
        match snapshot {
            Some(snapshot) => write!(f, "snapshot {}: ", snapshot.snapshot_id())?,
            None => f.write_str("no snapshot: ")?,
        }
        let files: usize = groups.iter().map(|group| group.tasks.len()).sum();
        let bytes: u64 = groups.iter().map(|group| group.input_bytes).sum();
        let in_groups = count(groups.len(), "group");
        writeln!(
            f,
            "rewrite {files} of {} ({}) in {in_groups}",
            count(*considered_data_files, "data file"),
            size(bytes)
        )?;
        let sizes = groups.iter().flat_map(|group| &group.tasks).map(|task| task.data_file.file_size_bytes);
        let largest = sizes.max().unwrap_or(0);
        for group in groups {
            draw_group(f, group, largest)?;
        }
        for line in skipped {
            writeln!(f, "{line}")?;
        }
        if *dangling_delete_files > 0 {
            writeln!(f, "{} without any data file to apply to", count(*dangling_delete_files, "delete file"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, detail, files, bytes } = self;
        write!(f, "skip {reason}: {} ({}): {detail}", count(*files, "file"), size(*bytes))
    }
}

fn draw_group(f: &mut fmt::Formatter<'_>, group: &FileGroup, largest: u64) -> fmt::Result {
    let FileGroup {
        index,
        partition,
        output_spec_id,
        tasks,
        input_bytes,
        expected_output_files,
        input_split_size_bytes,
        write_max_file_size_bytes,
    } = group;
    let place = match partition {
        Some(partition) => {
            let values: Vec<String> = partition.values.iter().map(literal_text).collect();
            format!("[{}]", values.join(", "))
        }
        None => "other specs".to_string(),
    };
    let outputs = count(usize::try_from(*expected_output_files).unwrap_or(usize::MAX), "file");
    writeln!(
        f,
        "group {index} {place}: {} ({}) -> {outputs} of spec {output_spec_id}, {} each, at most {}",
        count(tasks.len(), "file"),
        size(*input_bytes),
        size(*input_split_size_bytes),
        size(*write_max_file_size_bytes)
    )?;
    let name_width = tasks.iter().take(MAX_FILES).map(|t| name(&t.data_file).chars().count()).max().unwrap_or(0);
    for task in tasks.iter().take(MAX_FILES) {
        draw_task(f, task, largest, name_width)?;
    }
    if tasks.len() > MAX_FILES {
        writeln!(f, "  ... and {} more", tasks.len() - MAX_FILES)?;
    }
    Ok(())
}

fn draw_task(f: &mut fmt::Formatter<'_>, task: &RewriteTask, largest: u64, name_width: usize) -> fmt::Result {
    let file = &task.data_file;
    let name = name(file);
    let (sequence, bytes) = (file.data_sequence_number, size(file.file_size_bytes));
    let bar = bar(file.file_size_bytes, largest);
    write!(f, "  {name:name_width$}  seq {sequence:<3} |{bar:<20}| {bytes:>10} {:>7} rows", file.record_count)?;
    if !task.delete_files.is_empty() {
        f.write_str("  -")?;
        for delete in task.delete_files.iter().take(MAX_DELETES) {
            draw_delete(f, delete)?;
        }
        if task.delete_files.len() > MAX_DELETES {
            write!(f, " and {} more", task.delete_files.len() - MAX_DELETES)?;
        }
    }
    writeln!(f)
}

fn draw_delete(f: &mut fmt::Formatter<'_>, delete: &FileEntry) -> fmt::Result {
    let kind = match (delete.content, &delete.referenced_data_file) {
        (DataContentType::EqualityDeletes, _) => "eq",
        (DataContentType::PositionDeletes, _) if delete.is_deletion_vector() => "dv",
        (DataContentType::PositionDeletes, Some(_)) => "pos of file",
        (DataContentType::PositionDeletes, None) => "pos",
        (DataContentType::Data, _) => "data",
    };
    write!(f, " {}({kind}, seq {})", name(delete), delete.data_sequence_number)
}

/// Bars are rounded up, so that only an empty file has none.
fn bar(bytes: u64, largest: u64) -> String {
    let length = (u128::from(bytes) * u128::from(BAR)).div_ceil(u128::from(largest.max(1)));
    "#".repeat(usize::try_from(length).unwrap_or(0))
}

fn name(file: &FileEntry) -> &str {
    file.file_path.rsplit('/').next().unwrap_or(&file.file_path)
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}
