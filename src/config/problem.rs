//! What is wrong with a configuration file: every problem with its place, its key and its cure.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use crate::policy::{Place, Severity};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether anything starts with it.
    pub severity: Severity,
    /// The file as it was named.
    pub file: String,
    /// Where; `None` if the file could not be read or something is missing as a whole.
    pub place: Option<Place>,
    /// Key path, such as `limits.memory`; empty for problems of the file itself.
    pub key: String,
    /// What is wrong, lower case without a full stop.
    pub message: String,
    /// What to do; may be empty.
    pub cure: String,
    /// Other places that matter, with what they say.
    pub related: Vec<(Place, String)>,
    /// The line at `place`, secrets blanked out.
    pub line: String,
}

impl Problem {
    /// An error of no particular line.
    pub(crate) fn of_file(path: &Path, key: &str, message: String, cure: &str) -> Self {
        Self {
            severity: Severity::Error,
            file: path.display().to_string(),
            place: None,
            key: key.to_owned(),
            message,
            cure: cure.to_owned(),
            related: Vec::new(),
            line: String::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        match self.place {
            Some(place) => write!(f, "{}:{}:{}: {severity}: ", self.file, place.line, place.column)?,
            None => write!(f, "{}: {severity}: ", self.file)?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        writeln!(f, "{}", self.message)?;
        if let Some(place) = self.place.filter(|_| !self.line.is_empty()) {
            let number = place.line.to_string();
            // Tabs stay tabs, so that the caret stands under what it means.
            let indent: String = self
                .line
                .chars()
                .take(place.column.saturating_sub(1) as usize)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            writeln!(f, " {number} | {}", self.line)?;
            writeln!(f, " {:pad$} | {indent}{}", "", "^".repeat(place.width.max(1) as usize), pad = number.len())?;
        }
        for (place, text) in &self.related {
            writeln!(f, "  note: {}:{}:{}: {text}", self.file, place.line, place.column)?;
        }
        if !self.cure.is_empty() {
            writeln!(f, "  help: {}", self.cure)?;
        }
        Ok(())
    }
}

/// A configuration that cannot be used, with everything that is wrong with it in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| write!(f, "{problem}"))
    }
}

impl std::error::Error for Problems {}

impl From<Problems> for Error {
    fn from(problems: Problems) -> Self {
        Self::new(ErrorKind::Config, problems.to_string().trim_end().to_owned())
    }
}

/// The text of a configuration file, and what was found wrong with it so far.
pub(super) struct Diagnostics<'s> {
    file: &'s str,
    text: &'s str,
    problems: RefCell<Vec<Problem>>,
    /// Byte ranges of values that may be secrets.
    blanked: RefCell<Vec<Range<usize>>>,
}

impl<'s> Diagnostics<'s> {
    pub(super) fn new(file: &'s str, text: &'s str) -> Self {
        Self { file, text, problems: RefCell::default(), blanked: RefCell::default() }
    }

    /// A path that is relative to the folder of the file.
    pub(super) fn beside(&self, path: &str) -> PathBuf {
        Path::new(self.file).parent().unwrap_or(Path::new("")).join(path)
    }

    /// Where a byte range starts, and how many of its characters stand on that line.
    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        let start = floor_char(self.text, span.start);
        let end = floor_char(self.text, span.end).max(start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |i| i + 1);
        let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let on_line = self.text[start..end].lines().next().unwrap_or("");
        Place {
            line: count_lines(&self.text[..start]),
            column: count(&self.text[line_start..start]).saturating_add(1),
            width: count(on_line),
        }
    }

    /// Never shows the value at this range.
    pub(super) fn blank(&self, span: Range<usize>) {
        self.blanked.borrow_mut().push(span);
    }

    pub(super) fn error(&self, place: Place, key: &str, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Severity::Error, place, key, message.into(), cure.into(), Vec::new());
    }

    pub(super) fn warning(&self, place: Place, key: &str, message: impl Into<String>, cure: impl Into<String>) {
        self.push(Severity::Warning, place, key, message.into(), cure.into(), Vec::new());
    }

    pub(super) fn push(
        &self,
        severity: Severity,
        place: Place,
        key: &str,
        message: String,
        cure: String,
        related: Vec<(Place, String)>,
    ) {
        let (file, key) = (self.file.to_owned(), key.to_owned());
        let problem = Problem { severity, file, place: Some(place), key, message, cure, related, line: String::new() };
        // Policies that share [defaults] would each repeat what is wrong there.
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.problems.borrow().iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Whether some section's value of a setting could not be read. `key` is relative to the policy.
    pub(super) fn is_unreadable(&self, key: &str) -> bool {
        // Two keys set the schedule.
        let keys: &[&str] = if key == "schedule" { &["schedule", "every"] } else { &[key] };
        let ends = |path: &str| keys.iter().any(|key| path.strip_suffix(key).is_some_and(|rest| rest.ends_with('.')));
        self.problems.borrow().iter().any(|problem| problem.severity == Severity::Error && ends(&problem.key))
    }

    /// All problems in file order, each with its line.
    pub(super) fn finish(self) -> Vec<Problem> {
        let blanked = self.blanked.into_inner();
        let secret = |at: usize| blanked.iter().any(|span| span.contains(&at));
        let shown = |(at, c): (usize, char)| if secret(at) && c != '\n' { '*' } else { c };
        let shown: String = self.text.char_indices().map(shown).collect();
        let lines: Vec<&str> = shown.lines().collect();
        let mut problems = self.problems.into_inner();
        for problem in &mut problems {
            let line = problem.place.and_then(|place| lines.get(place.line as usize - 1));
            problem.line = line.map(|line| (*line).to_owned()).unwrap_or_default();
        }
        problems.sort_by_key(|problem| (problem.place, problem.severity));
        problems
    }
}

fn count_lines(before: &str) -> u32 {
    u32::try_from(before.matches('\n').count() + 1).unwrap_or(u32::MAX)
}

/// The nearest character boundary at or before `at`.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The candidate that `word` was probably meant to be.
pub(super) fn did_you_mean<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.chars().count() / 3))
        .min()
        .map(|(_, candidate)| candidate)
}
