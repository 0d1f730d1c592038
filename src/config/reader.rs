//! Reads TOML values one by one and goes on after a mistake, so that all of them are reported at once.

use std::ops::Range;
use std::time::Duration;

use jiff::tz::TimeZone;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::partitions::read_partitions;
use super::problem::{Diagnostics, did_you_mean};
use super::units::{self, DURATION_FORM, SIZE_FORM, SPAN_FORM};
use crate::policy::{
    CommitInterval, PartitionSelection, Place, Placed, RewriteJobOrder, Schedule, SettingReader, Span, TablePattern,
    TablePatterns,
};

/// Longest time between two runs, between two commits, and of the delay: ten years.
const PERIOD_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// A table that is being read. Keys that were never asked for are reported by [`Section::finish`].
pub(super) struct Section<'t> {
    pub(super) diagnostics: &'t Diagnostics<'t>,
    table: &'t DeTable<'t>,
    /// Key path of the table.
    pub(super) path: String,
    /// Where the table stands.
    span: Range<usize>,
    asked: Vec<&'static str>,
}

/// A value with its key path.
pub(super) struct TomlValue<'t> {
    pub(super) diagnostics: &'t Diagnostics<'t>,
    pub(super) value: &'t DeValue<'t>,
    pub(super) span: Range<usize>,
    pub(super) path: String,
}

impl<'t> Section<'t> {
    pub(super) fn root(diagnostics: &'t Diagnostics<'t>, table: &'t DeTable<'t>) -> Self {
        Self { diagnostics, table, path: String::new(), span: 0..0, asked: Vec::new() }
    }

    /// The value of a key, if it is there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<TomlValue<'t>> {
        self.asked.push(key);
        self.table.get(key).map(|value| self.item(key, value))
    }

    fn item(&self, key: &str, value: &'t Spanned<DeValue<'t>>) -> TomlValue<'t> {
        let (diagnostics, path) = (self.diagnostics, self.path_of(key));
        TomlValue { diagnostics, value: value.get_ref(), span: value.span(), path }
    }

    /// The value of a key read by `read`, with its place.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&TomlValue<'t>) -> Option<T>,
    ) -> Option<Placed<T>> {
        let item = self.take(key)?;
        Some(Placed { value: read(&item)?, place: item.place() })
    }

    /// The same without its place.
    pub(super) fn get<T>(&mut self, key: &'static str, read: impl FnOnce(&TomlValue<'t>) -> Option<T>) -> Option<T> {
        read(&self.take(key)?)
    }

    /// Replaces a default with the value of a key, if it is there.
    pub(super) fn set<T>(&mut self, key: &'static str, value: &mut T, read: impl FnOnce(&TomlValue<'t>) -> Option<T>) {
        if let Some(read) = self.get(key, read) {
            *value = read;
        }
    }

    /// The value of a key that must be there.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        cure: &str,
        read: impl FnOnce(&TomlValue<'t>) -> Option<T>,
    ) -> Option<Placed<T>> {
        if !self.has(key) {
            self.diagnostics.error(self.place(), &self.path_of(key), "is missing", cure);
        }
        self.read(key, read)
    }

    /// The table under a key.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'t>> {
        self.take(key)?.section()
    }

    /// Every key with its value, for tables whose keys are names.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'t str, Range<usize>, TomlValue<'t>)> {
        self.table.iter().map(|(key, value)| (&**key.get_ref(), key.span(), self.item(key.get_ref(), value)))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn was_asked(&self, key: &str) -> bool {
        self.asked.contains(&key)
    }

    /// Where the key itself stands.
    pub(super) fn key_place(&self, key: &str) -> Option<Place> {
        self.table.get_key_value(key).map(|(key, _)| self.diagnostics.place(&key.span()))
    }

    /// Where the table stands.
    pub(super) fn place(&self) -> Place {
        self.diagnostics.place(&self.span)
    }

    /// Key path of a key in the table.
    pub(super) fn path_of(&self, key: &str) -> String {
        let bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let key = if bare { key.to_owned() } else { format!("\"{key}\"") };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self) {
        self.finish_with(|_| None);
    }

    /// The same; `cure` may know where a key belongs that does not belong here.
    pub(super) fn finish_with(self, cure: impl Fn(&str) -> Option<String>) {
        for (key, span, _) in self.entries().filter(|(key, ..)| !self.was_asked(key)) {
            let cure = cure(key).unwrap_or_else(|| match did_you_mean(key, self.asked.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known here: {}", self.asked.join(", ")),
            });
            self.diagnostics.error(self.diagnostics.place(&span), &self.path_of(key), "unknown key", cure);
        }
    }
}

impl<'t> TomlValue<'t> {
    pub(super) fn place(&self) -> Place {
        self.diagnostics.place(&self.span)
    }

    pub(super) fn error(&self, message: impl Into<String>, cure: impl Into<String>) {
        self.diagnostics.error(self.place(), &self.path, message, cure);
    }

    /// The same, for a value that cannot be used.
    pub(super) fn refuse<T>(&self, message: impl Into<String>, cure: impl Into<String>) -> Option<T> {
        self.error(message, cure);
        None
    }

    /// Reports that something else was expected.
    fn expected<T>(&self, form: &str) -> Option<T> {
        let kind = self.value.type_str();
        let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
        self.refuse(format!("expected {form}, found {article} {kind}"), "")
    }

    pub(super) fn section(&self) -> Option<Section<'t>> {
        let DeValue::Table(table) = self.value else { return self.expected("a table") };
        let (diagnostics, path) = (self.diagnostics, self.path.clone());
        Some(Section { diagnostics, table, path, span: self.span.clone(), asked: Vec::new() })
    }

    /// The elements of an array.
    pub(super) fn elements(&self) -> Option<Vec<TomlValue<'t>>> {
        let DeValue::Array(array) = self.value else { return self.expected("an array") };
        let element = |(i, value): (usize, &'t Spanned<DeValue<'t>>)| TomlValue {
            diagnostics: self.diagnostics,
            value: value.get_ref(),
            span: value.span(),
            path: format!("{}[{i}]", self.path),
        };
        Some(array.iter().enumerate().map(element).collect())
    }

    pub(super) fn str(&self) -> Option<&'t str> {
        self.str_of("a string")
    }

    fn str_of(&self, form: &str) -> Option<&'t str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => self.expected(form),
        }
    }

    /// A string that is not empty.
    pub(super) fn string(&self) -> Option<String> {
        let text = self.str()?;
        if text.trim().is_empty() { self.refuse("is empty", "") } else { Some(text.to_owned()) }
    }

    fn with_unit<T>(&self, form: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.str_of(form)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(why) => self.refuse(format!("cannot read \"{text}\": {why}"), format!("write {form}")),
        }
    }

    /// A duration above 0.
    pub(super) fn duration(&self) -> Option<Duration> {
        let duration = self.with_unit(DURATION_FORM, units::parse_duration)?;
        if duration.is_zero() { self.refuse("must be above 0", "") } else { Some(duration) }
    }

    /// A duration above 0 that a schedule is made of.
    pub(super) fn period(&self) -> Option<Duration> {
        let duration = self.duration()?;
        self.within_limit(duration).then_some(duration)
    }

    /// Whether a duration is short enough for something that is to happen at all.
    fn within_limit(&self, duration: Duration) -> bool {
        let short_enough = duration <= PERIOD_MAX;
        if !short_enough {
            self.error("is longer than ten years", "use at most \"3650d\"");
        }
        short_enough
    }

    /// One of the given words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.str()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let cure = match did_you_mean(text, words.iter().map(|(word, _)| *word)) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("use one of {}", known.join(", ")),
        };
        self.refuse(format!("\"{text}\" is not known here"), cure)
    }

    /// The patterns of an array that can be read.
    pub(super) fn placed_patterns(&self) -> Option<Vec<Placed<TablePattern>>> {
        let mut patterns = Vec::new();
        for element in self.elements()? {
            let Some(text) = element.str() else { continue };
            match TablePattern::parse(text) {
                Ok(value) => patterns.push(Placed { value, place: element.place() }),
                Err(why) => element.error(
                    format!("pattern \"{text}\" matches nothing: {why}"),
                    "write catalog.namespace.table; `*` stands for any characters of a level, `**` for any levels",
                ),
            }
        }
        Some(patterns)
    }
}

impl SettingReader for TomlValue<'_> {
    fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.expected("true or false"),
        }
    }

    fn count(&self, min: usize) -> Option<usize> {
        let DeValue::Integer(number) = self.value else { return self.expected("a whole number") };
        match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if number >= i64::try_from(min).unwrap_or(i64::MAX) => usize::try_from(number).ok(),
            Ok(number) => self.refuse(format!("{number} is too small"), format!("use at least {min}")),
            Err(_) => self.refuse("the number is too large", ""),
        }
    }

    fn ratio(&self) -> Option<f64> {
        let text = match self.value {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            _ => return self.expected("a number above 0, at most 1"),
        };
        match text.parse::<f64>() {
            Ok(number) if number > 0.0 && number <= 1.0 => Some(number),
            _ => self.refuse(format!("{text} is not above 0 and at most 1"), "it is a share: 0.3 means 30 %"),
        }
    }

    fn size(&self) -> Option<u64> {
        let bytes = self.size_or_zero()?;
        if bytes == 0 { self.refuse("must be above 0", "") } else { Some(bytes) }
    }

    fn size_or_zero(&self) -> Option<u64> {
        self.with_unit(SIZE_FORM, units::parse_size)
    }

    fn span(&self) -> Option<Span> {
        self.with_unit(SPAN_FORM, units::parse_span)
    }

    fn wait(&self) -> Option<Span> {
        self.span().filter(|span| match span {
            Span::Fixed(duration) => self.within_limit(*duration),
            Span::Intervals(_) => true,
        })
    }

    fn commit_interval(&self) -> Option<CommitInterval> {
        if self.str()? == "auto" { Some(CommitInterval::Auto) } else { self.period().map(CommitInterval::Fixed) }
    }

    fn cron(&self) -> Option<Schedule> {
        let cure = "write minute, hour, day of month, month, day of week, such as \"0 6,18 * * *\"; or every = \"1h\"";
        Schedule::cron(self.str()?).map_or_else(|error| self.refuse(error.to_string(), cure), Some)
    }

    fn time_zone(&self) -> Option<String> {
        let text = self.str()?;
        if TimeZone::get(text).is_ok() {
            return Some(text.to_owned());
        }
        let known: Vec<String> = jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
        let cure = match did_you_mean(text, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "use an IANA name such as \"Asia/Seoul\" or \"UTC\"".to_owned(),
        };
        self.refuse(format!("there is no time zone \"{text}\""), cure)
    }

    fn rewrite_job_order(&self) -> Option<RewriteJobOrder> {
        self.one_of(RewriteJobOrder::WORDS)
    }

    fn partitions(&self) -> Option<PartitionSelection> {
        read_partitions(self)
    }

    fn patterns(&self) -> Option<TablePatterns> {
        let patterns = self.placed_patterns()?;
        Some(TablePatterns(patterns.into_iter().map(|placed| placed.value).collect()))
    }
}
