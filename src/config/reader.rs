//! Reads TOML values one by one and goes on after a mistake, so that all of them are reported at once.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Diagnostics, did_you_mean};
use super::units::{self, DURATION_FORM, SIZE_FORM, SPAN_FORM};
use crate::policy::{Place, Placed, Span};

/// Longest time between two runs, between two commits, and of the delay: ten years.
const PERIOD_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// A table that is being read. Keys that were never asked for are reported by [`Section::finish`].
pub(super) struct Section<'t, 'i> {
    table: &'t DeTable<'i>,
    /// Key path of the table.
    path: String,
    /// Where the table stands.
    span: Range<usize>,
    asked: Vec<&'static str>,
}

/// A value with its key path.
pub(super) struct Item<'t, 'i> {
    pub(super) value: &'t DeValue<'i>,
    pub(super) span: Range<usize>,
    pub(super) path: String,
}

impl<'t, 'i> Section<'t, 'i> {
    pub(super) fn new(table: &'t DeTable<'i>, path: impl Into<String>, span: Range<usize>) -> Self {
        Self { table, path: path.into(), span, asked: Vec::new() }
    }

    /// The value of a key, if it is there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Item<'t, 'i>> {
        self.asked.push(key);
        let value = self.table.get(key)?;
        Some(Item { value: value.get_ref(), span: value.span(), path: self.path_of(key) })
    }

    /// The value of a key read by `read`, with its place.
    pub(super) fn read<T>(
        &mut self,
        diagnostics: &mut Diagnostics<'_>,
        key: &'static str,
        read: impl FnOnce(&mut Diagnostics<'_>, &Item<'t, 'i>) -> Option<T>,
    ) -> Option<Placed<T>> {
        let item = self.take(key)?;
        let value = read(diagnostics, &item)?;
        Some(Placed { value, place: item.place(diagnostics) })
    }

    /// The table under a key.
    pub(super) fn section(&mut self, diagnostics: &mut Diagnostics<'_>, key: &'static str) -> Option<Section<'t, 'i>> {
        self.take(key)?.section(diagnostics)
    }

    /// Every key with its value, for tables whose keys are names.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'t str, Range<usize>, Item<'t, 'i>)> {
        self.table.iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            let item = Item { value: value.get_ref(), span: value.span(), path: self.path_of(name) };
            (name, key.span(), item)
        })
    }

    /// Where the key itself stands.
    pub(super) fn key_place(&self, diagnostics: &Diagnostics<'_>, key: &str) -> Option<Place> {
        self.table.get_key_value(key).map(|(key, _)| diagnostics.place(&key.span()))
    }

    /// Where the table stands.
    pub(super) fn place(&self, diagnostics: &Diagnostics<'_>) -> Place {
        diagnostics.place(&self.span)
    }

    /// Key path of the table.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Key path of a key in the table.
    pub(super) fn path_of(&self, key: &str) -> String {
        let key = if key.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')) {
            format!("\"{key}\"")
        } else {
            key.to_owned()
        };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    /// Reports a key that must be there and is not.
    pub(super) fn missing(&self, diagnostics: &mut Diagnostics<'_>, key: &str, cure: &str) {
        diagnostics.error(self.place(diagnostics), &self.path_of(key), "is missing", cure);
    }

    /// Reports every key that nobody asked for.
    pub(super) fn finish(self, diagnostics: &mut Diagnostics<'_>) {
        self.finish_with(diagnostics, |_| None);
    }

    /// The same; `cure` may know where a key belongs that does not belong here.
    pub(super) fn finish_with(self, diagnostics: &mut Diagnostics<'_>, cure: impl Fn(&str) -> Option<String>) {
        for (key, span, _) in self.entries() {
            if self.asked.contains(&key) {
                continue;
            }
            let cure = cure(key).unwrap_or_else(|| match did_you_mean(key, self.asked.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known here: {}", self.asked.join(", ")),
            });
            diagnostics.error(diagnostics.place(&span), &self.path_of(key), "unknown key", cure);
        }
    }
}

impl<'t, 'i> Item<'t, 'i> {
    pub(super) fn place(&self, diagnostics: &Diagnostics<'_>) -> Place {
        diagnostics.place(&self.span)
    }

    pub(super) fn error(&self, diagnostics: &mut Diagnostics<'_>, message: impl Into<String>, cure: impl Into<String>) {
        diagnostics.error(self.place(diagnostics), &self.path, message, cure);
    }

    /// Reports that something else was expected.
    fn expected(&self, diagnostics: &mut Diagnostics<'_>, form: &str) {
        self.error(diagnostics, format!("expected {form}, found {}", article(self.value.type_str())), "");
    }

    pub(super) fn section(&self, diagnostics: &mut Diagnostics<'_>) -> Option<Section<'t, 'i>> {
        match self.value {
            DeValue::Table(table) => Some(Section::new(table, self.path.clone(), self.span.clone())),
            _ => {
                self.expected(diagnostics, "a table");
                None
            }
        }
    }

    /// The elements of an array.
    pub(super) fn elements(&self, diagnostics: &mut Diagnostics<'_>) -> Option<Vec<Item<'t, 'i>>> {
        let DeValue::Array(array) = self.value else {
            self.expected(diagnostics, "an array");
            return None;
        };
        let element = |(i, value): (usize, &'t Spanned<DeValue<'i>>)| Item {
            value: value.get_ref(),
            span: value.span(),
            path: format!("{}[{i}]", self.path),
        };
        Some(array.iter().enumerate().map(element).collect())
    }

    pub(super) fn str(&self, diagnostics: &mut Diagnostics<'_>) -> Option<&'t str> {
        self.str_of(diagnostics, "a string")
    }

    fn str_of(&self, diagnostics: &mut Diagnostics<'_>, form: &str) -> Option<&'t str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => {
                self.expected(diagnostics, form);
                None
            }
        }
    }
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// A string that is not empty.
pub(super) fn string(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<String> {
    let text = item.str(diagnostics)?;
    if text.trim().is_empty() {
        item.error(diagnostics, "is empty", "");
        return None;
    }
    Some(text.to_owned())
}

/// `true` or `false`.
pub(super) fn boolean(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<bool> {
    match item.value {
        DeValue::Boolean(value) => Some(*value),
        _ => {
            item.expected(diagnostics, "true or false");
            None
        }
    }
}

/// A whole number of at least `min`.
pub(super) fn count(min: usize) -> impl FnOnce(&mut Diagnostics<'_>, &Item<'_, '_>) -> Option<usize> {
    move |diagnostics, item| {
        let DeValue::Integer(number) = item.value else {
            item.expected(diagnostics, "a whole number");
            return None;
        };
        match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if number >= i64::try_from(min).unwrap_or(i64::MAX) => usize::try_from(number).ok(),
            Ok(number) => {
                item.error(diagnostics, format!("{number} is too small"), format!("use at least {min}"));
                None
            }
            Err(_) => {
                item.error(diagnostics, "the number is too large", "");
                None
            }
        }
    }
}

/// A share above 0, at most 1.
pub(super) fn ratio(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<f64> {
    let text = match item.value {
        DeValue::Float(number) => number.as_str(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        _ => {
            item.expected(diagnostics, "a number above 0, at most 1");
            return None;
        }
    };
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1.0 => Some(number),
        _ => {
            item.error(diagnostics, format!("{text} is not above 0 and at most 1"), "it is a share: 0.3 means 30 %");
            None
        }
    }
}

fn with_unit<T>(
    diagnostics: &mut Diagnostics<'_>,
    item: &Item<'_, '_>,
    form: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let text = item.str_of(diagnostics, form)?;
    match parse(text) {
        Ok(value) => Some(value),
        Err(why) => {
            item.error(diagnostics, format!("cannot read \"{text}\": {why}"), format!("write {form}"));
            None
        }
    }
}

/// A size above 0, in bytes.
pub(super) fn size(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<u64> {
    let bytes = size_or_zero(diagnostics, item)?;
    if bytes == 0 {
        item.error(diagnostics, "must be above 0", "");
        return None;
    }
    Some(bytes)
}

/// A size, in bytes.
pub(super) fn size_or_zero(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<u64> {
    with_unit(diagnostics, item, SIZE_FORM, units::parse_size)
}

/// A duration above 0.
pub(super) fn duration(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<Duration> {
    let duration = with_unit(diagnostics, item, DURATION_FORM, units::parse_duration)?;
    if duration.is_zero() {
        item.error(diagnostics, "must be above 0", "");
        return None;
    }
    Some(duration)
}

/// A duration above 0 that a schedule is made of.
pub(super) fn period(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<Duration> {
    let duration = duration(diagnostics, item)?;
    within_limit(diagnostics, item, duration).then_some(duration)
}

/// A span that a schedule is made of.
pub(super) fn wait(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<Span> {
    let span = span(diagnostics, item)?;
    match span {
        Span::Fixed(duration) => within_limit(diagnostics, item, duration).then_some(span),
        Span::Intervals(_) => Some(span),
    }
}

/// Whether a duration is short enough for something that is to happen at all.
fn within_limit(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>, duration: Duration) -> bool {
    let short_enough = duration <= PERIOD_MAX;
    if !short_enough {
        item.error(diagnostics, "is longer than ten years", "use at most \"3650d\"");
    }
    short_enough
}

/// A duration or a multiple of the commit interval.
pub(super) fn span(diagnostics: &mut Diagnostics<'_>, item: &Item<'_, '_>) -> Option<Span> {
    with_unit(diagnostics, item, SPAN_FORM, units::parse_span)
}

/// One of the given words.
pub(super) fn one_of<T: Copy>(
    words: &'static [(&'static str, T)],
) -> impl FnOnce(&mut Diagnostics<'_>, &Item<'_, '_>) -> Option<T> {
    move |diagnostics, item| {
        let text = item.str(diagnostics)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let cure = match did_you_mean(text, words.iter().map(|(word, _)| *word)) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("use one of {}", known.join(", ")),
        };
        item.error(diagnostics, format!("\"{text}\" is not known here"), cure);
        None
    }
}
