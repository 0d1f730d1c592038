//! `[defaults]` and `[[policies]]`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::partitions::read_partitions;
use super::problem::{Diagnostics, did_you_mean};
use super::reader::{Item, Section, boolean, count, one_of, period, ratio, size, size_or_zero, span, string, wait};
use crate::policy::{
    CommitInterval, Layer, Placed, RewriteJobOrder, Schedule, Setting, Severity, TablePattern, TablePatterns,
};

type Settings = Vec<Placed<Setting>>;

pub(super) fn read_defaults(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>) -> Layer {
    for key in ["name", "tables"] {
        if let Some(item) = section.take(key) {
            item.error(diagnostics, "the defaults hold for every policy", "move it to a [[policies]] section");
        }
    }
    let settings = read_settings(diagnostics, &mut section);
    section.finish_with(diagnostics, |key| belongs_below(key, "defaults"));
    Layer { name: None, tables: Vec::new(), settings }
}

pub(super) fn read_policies(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Vec<Layer> {
    let mut policies: Vec<Layer> = Vec::new();
    let mut names: Vec<Placed<String>> = Vec::new();
    for item in item.elements(diagnostics).unwrap_or_default() {
        let Some(mut section) = item.section(diagnostics) else { continue };
        let name = section.read(diagnostics, "name", string);
        if section.key_place(diagnostics, "name").is_none() {
            section.missing(diagnostics, "name", "add name = \"...\": reports and `plan` call the policy by it");
        }
        let tables = match section.take("tables") {
            Some(item) => read_patterns(diagnostics, &item),
            None => {
                section.missing(diagnostics, "tables", "add tables = [\"catalog.namespace.*\"]");
                Vec::new()
            }
        };
        let settings = read_settings(diagnostics, &mut section);
        let path = section.path_of("name");
        section.finish_with(diagnostics, |key| belongs_below(key, "policies"));
        if let Some(name) = &name {
            if let Some(first) = names.iter().find(|known| known.value == name.value) {
                let message = format!("two policies are called \"{}\"", name.value);
                let related = vec![(first.place, "the first one".to_owned())];
                let cure = "give each policy a name of its own".to_owned();
                diagnostics.push(Severity::Error, Some(name.place), &path, message, cure, related);
            }
            names.push(name.clone());
        }
        let name = name.map(|placed| Arc::from(placed.value));
        policies.push(Layer { name: name.or(Some(Arc::from(""))), tables, settings });
    }
    policies
}

/// The cure for a key that stands beside the actions (`section` says where) and belongs to one of them or to several.
/// Iceberg's own options are often written with underscores.
fn belongs_below(key: &str, section: &str) -> Option<String> {
    let key = key.replace('_', "-");
    let mut places = BTreeSet::new();
    for path in Setting::KEYS.iter().copied().chain(["rewrite-data-files.strategy"]) {
        let parts: Vec<&str> = path.split('.').collect();
        if let Some(at) = parts.iter().skip(1).position(|part| *part == key) {
            places.insert(format!("[{section}.{}]", parts[..=at].join(".")));
        }
    }
    let places = places.into_iter().reduce(|list, place| format!("{list} or {place}"))?;
    Some(format!("`{key}` belongs under {places}"))
}

fn read_patterns(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Vec<Placed<TablePattern>> {
    let Some(elements) = item.elements(diagnostics) else { return Vec::new() };
    if elements.is_empty() {
        item.error(diagnostics, "names no table", "add a pattern such as \"catalog.namespace.*\"");
    }
    parse_patterns(diagnostics, elements)
}

/// A list of patterns that may be empty.
fn patterns(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<TablePatterns> {
    let elements = item.elements(diagnostics)?;
    Some(TablePatterns(parse_patterns(diagnostics, elements).into_iter().map(|placed| placed.value).collect()))
}

fn parse_patterns(diagnostics: &mut Diagnostics<'_>, elements: Vec<Item<'_, '_>>) -> Vec<Placed<TablePattern>> {
    let mut patterns = Vec::new();
    for element in elements {
        let Some(text) = element.str(diagnostics) else { continue };
        match TablePattern::parse(text) {
            Ok(pattern) => patterns.push(Placed { value: pattern, place: element.place(diagnostics) }),
            Err(why) => {
                let cure =
                    "write catalog.namespace.table; `*` stands for any characters of a level, `**` for any levels";
                element.error(diagnostics, format!("pattern \"{text}\" matches nothing: {why}"), cure);
            }
        }
    }
    patterns
}

/// Reads a key into a setting.
macro_rules! setting {
    ($settings:ident, $diagnostics:ident, $section:ident, $key:literal, $read:expr, $variant:ident) => {
        if let Some(placed) = $section.read($diagnostics, $key, $read) {
            $settings.push(Placed { value: Setting::$variant(placed.value), place: placed.place });
        }
    };
}

fn read_settings(diagnostics: &mut Diagnostics<'_>, section: &mut Section<'_, '_>) -> Settings {
    let mut settings = Vec::new();
    setting!(settings, diagnostics, section, "commit-interval", commit_interval, CommitInterval);
    read_schedule(diagnostics, section, &mut settings);
    setting!(settings, diagnostics, section, "time-zone", zone_name, TimeZone);
    setting!(settings, diagnostics, section, "delay", wait, Delay);
    if let Some(section) = section.section(diagnostics, "rewrite-data-files") {
        read_rewrite(diagnostics, section, &mut settings);
    }
    if let Some(mut section) = section.section(diagnostics, "expire-snapshots") {
        setting!(settings, diagnostics, section, "enabled", boolean, ExpireEnabled);
        setting!(settings, diagnostics, section, "older-than", span, ExpireOlderThan);
        setting!(settings, diagnostics, section, "retain-last", count(1), RetainLast);
        setting!(settings, diagnostics, section, "writer-retention", wait, WriterRetention);
        section.finish(diagnostics);
    }
    if let Some(mut section) = section.section(diagnostics, "remove-orphan-files") {
        setting!(settings, diagnostics, section, "enabled", boolean, OrphanEnabled);
        setting!(settings, diagnostics, section, "older-than", span, OrphanOlderThan);
        setting!(settings, diagnostics, section, "unproven-min-age", span, UnprovenMinAge);
        setting!(settings, diagnostics, section, "ignore-unreadable", patterns, IgnoreUnreadable);
        section.finish(diagnostics);
    }
    settings
}

fn read_schedule(diagnostics: &mut Diagnostics<'_>, section: &mut Section<'_, '_>, settings: &mut Settings) {
    let schedule = section.read(diagnostics, "schedule", cron);
    let every = section.read(diagnostics, "every", period);
    let places = (section.key_place(diagnostics, "schedule"), section.key_place(diagnostics, "every"));
    if let (Some(schedule_place), Some(every_place)) = places {
        let related = vec![(schedule_place, "the schedule".to_owned())];
        let cure = "keep one: `schedule` for times of day, `every` for a distance".to_owned();
        let message = "cannot stand beside `schedule`".to_owned();
        diagnostics.push(Severity::Error, Some(every_place), &section.path_of("every"), message, cure, related);
    }
    if let Some(placed) = schedule {
        settings.push(Placed { value: Setting::Schedule(placed.value), place: placed.place });
    } else if let Some(placed) = every {
        settings.push(Placed { value: Setting::Schedule(Schedule::Every(placed.value)), place: placed.place });
    }
}

fn read_rewrite(diagnostics: &mut Diagnostics<'_>, mut section: Section<'_, '_>, settings: &mut Settings) {
    let s = &mut section;
    setting!(settings, diagnostics, s, "enabled", boolean, RewriteEnabled);
    if let Some(item) = s.take("strategy") {
        check_strategy(diagnostics, &item);
    }
    setting!(settings, diagnostics, s, "rewrite-all", boolean, RewriteAll);
    setting!(settings, diagnostics, s, "target-file-size", size, TargetFileSize);
    setting!(settings, diagnostics, s, "min-file-size", size_or_zero, MinFileSize);
    setting!(settings, diagnostics, s, "max-file-size", size, MaxFileSize);
    setting!(settings, diagnostics, s, "min-input-files", count(1), MinInputFiles);
    setting!(settings, diagnostics, s, "max-file-group-size", size, MaxFileGroupSize);
    setting!(settings, diagnostics, s, "max-file-group-input-files", count(1), MaxFileGroupInputFiles);
    setting!(settings, diagnostics, s, "delete-file-threshold", count(1), DeleteFileThreshold);
    setting!(settings, diagnostics, s, "delete-ratio-threshold", ratio, DeleteRatioThreshold);
    setting!(settings, diagnostics, s, "max-files-to-rewrite", count(1), MaxFilesToRewrite);
    setting!(settings, diagnostics, s, "rewrite-job-order", one_of(JOB_ORDERS), RewriteJobOrder);
    setting!(settings, diagnostics, s, "max-concurrent-file-group-rewrites", count(1), MaxConcurrentFileGroupRewrites);
    if let Some(mut partial) = s.section(diagnostics, "partial-progress") {
        let p = &mut partial;
        setting!(settings, diagnostics, p, "enabled", boolean, PartialProgressEnabled);
        setting!(settings, diagnostics, p, "max-commits", count(1), PartialProgressMaxCommits);
        setting!(settings, diagnostics, p, "max-failed-commits", count(0), PartialProgressMaxFailedCommits);
        partial.finish(diagnostics);
    }
    setting!(settings, diagnostics, s, "partitions", read_partitions, Partitions);
    section.finish(diagnostics);
}

const JOB_ORDERS: &[(&str, RewriteJobOrder)] = &[
    ("none", RewriteJobOrder::None),
    ("bytes-asc", RewriteJobOrder::BytesAsc),
    ("bytes-desc", RewriteJobOrder::BytesDesc),
    ("files-asc", RewriteJobOrder::FilesAsc),
    ("files-desc", RewriteJobOrder::FilesDesc),
];

fn check_strategy(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) {
    match item.str(diagnostics) {
        Some("binpack") | None => {}
        Some(text @ ("sort" | "zorder" | "z-order" | "zsort")) => {
            let message = format!("strategy \"{text}\" is not in this version");
            item.error(diagnostics, message, "use \"binpack\", or leave it out");
        }
        Some(text) => item.error(diagnostics, format!("there is no strategy \"{text}\""), "use \"binpack\""),
    }
}

fn commit_interval(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<CommitInterval> {
    if item.str(diagnostics)? == "auto" {
        return Some(CommitInterval::Auto);
    }
    period(diagnostics, item).map(CommitInterval::Fixed)
}

fn cron(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<Schedule> {
    let text = item.str(diagnostics)?;
    match Schedule::cron(text) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            let cure =
                "write minute, hour, day of month, month, day of week, such as \"0 6,18 * * *\"; or every = \"1h\"";
            item.error(diagnostics, error.to_string(), cure);
            None
        }
    }
}

fn zone_name(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<String> {
    let text = item.str(diagnostics)?;
    if TimeZone::get(text).is_ok() {
        return Some(text.to_owned());
    }
    let known: Vec<String> = jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
    let cure = match did_you_mean(text, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => "use an IANA name such as \"Asia/Seoul\" or \"UTC\"".to_owned(),
    };
    item.error(diagnostics, format!("there is no time zone \"{text}\""), cure);
    None
}
