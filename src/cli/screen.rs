//! Where output goes: a terminal of some width, or a pipe that wants plain lines without escape codes.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

use crate::telemetry::visible;

/// Where nothing tells how wide the terminal is.
const COLUMNS_FALLBACK: u16 = 80;

/// What a stream can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    /// Characters in a line of a terminal; `None` for a pipe, a file, and a terminal that can do no more than they.
    columns: Option<u16>,
    /// Whether bold and colours may be used.
    styled: bool,
}

impl Screen {
    /// Of standard output.
    pub(super) fn stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    /// Of standard error.
    pub(super) fn stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let columns = rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col);
        Self::with(stream.is_terminal(), columns, |name| std::env::var(name).ok())
    }

    fn with(terminal: bool, columns: Option<u16>, variable: impl Fn(&str) -> Option<String>) -> Self {
        let capable = terminal && variable("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let told = columns.filter(|n| *n > 0).or_else(|| variable("COLUMNS")?.parse().ok().filter(|n| *n > 0));
        Self {
            columns: capable.then(|| told.unwrap_or(COLUMNS_FALLBACK)),
            styled: capable && variable("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Whether it is a terminal on which lines can be drawn anew.
    pub(super) fn is_terminal(self) -> bool {
        self.columns.is_some()
    }

    fn bold(self, text: &str) -> String {
        if self.styled { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A heading with labelled values below: aligned and wrapped on a terminal, one value per line elsewhere.
pub(super) struct Sheet {
    heading: String,
    /// Each is aligned by itself.
    sections: Vec<Vec<SheetRow>>,
}

enum SheetRow {
    Value(String, String),
    /// A line that stays as it is.
    Text(String),
}

impl Sheet {
    pub(super) fn new(heading: &str) -> Self {
        Self { heading: visible(heading), sections: vec![Vec::new()] }
    }

    fn push(&mut self, row: SheetRow) {
        if let Some(section) = self.sections.last_mut() {
            section.push(row);
        }
    }

    /// Adds a value. Two spaces before the label put it below the one before.
    pub(super) fn line(&mut self, label: &str, value: &str) {
        self.push(SheetRow::Value(visible(label), visible(value)));
    }

    pub(super) fn drawing(&mut self, lines: &str) {
        for line in lines.lines() {
            self.push(SheetRow::Text(format!("    {}", visible(line))));
        }
    }

    pub(super) fn section(&mut self, title: &str) {
        self.sections.push(vec![SheetRow::Text(format!("  {}:", visible(title)))]);
    }

    pub(super) fn render(&self, screen: Screen) -> String {
        let mut text = format!("{}\n", screen.bold(&self.heading));
        for section in &self.sections {
            match screen.columns {
                Some(columns) => push_aligned(&mut text, section, columns),
                None => text.extend(section.iter().map(|row| match row {
                    SheetRow::Value(label, value) => format!("  {label}: {value}\n"),
                    SheetRow::Text(line) => format!("{line}\n"),
                })),
            }
        }
        text
    }
}

fn push_aligned(text: &mut String, section: &[SheetRow], columns: u16) {
    let labels = section.iter().filter_map(|row| match row {
        SheetRow::Value(label, _) => Some(label.chars().count()),
        SheetRow::Text(_) => None,
    });
    // Half of the screen at most, so that there is room for values.
    let widest = labels.max().unwrap_or(0).min(usize::from(columns / 2));
    let mut table = borderless(columns);
    for row in section {
        match row {
            SheetRow::Value(label, value) => {
                table.add_row([format!(" {label:widest$}"), value.clone()]);
            }
            SheetRow::Text(line) => {
                push_table(text, std::mem::replace(&mut table, borderless(columns)));
                text.push_str(&format!("{line}\n"));
            }
        }
    }
    push_table(text, table);
}

fn push_table(text: &mut String, table: Table) {
    if !table.is_empty() {
        text.push_str(&format!("{}\n", table.trim_fmt()));
    }
}

/// Rows below headings: on a terminal only.
pub(super) fn table(screen: Screen, headings: &[&str], rows: &[Vec<String>]) -> Option<String> {
    let mut table = borderless(screen.columns?);
    table.set_header(headings.iter().map(|heading| heading.to_uppercase()).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row.iter().map(|cell| visible(cell)).collect::<Vec<_>>());
    }
    // What a row is about stays in one piece.
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    Some(format!("{}\n", table.trim_fmt()))
}

fn borderless(columns: u16) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Screen = Screen { columns: None, styled: false };

    fn screen(terminal: bool, columns: Option<u16>, variables: &[(&str, &str)]) -> Screen {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Screen::with(terminal, columns, find)
    }

    #[test]
    fn only_a_capable_terminal_is_drawn_on() {
        let xterm = ("TERM", "xterm");
        let drawn = |columns, styled| Screen { columns: Some(columns), styled };
        assert_eq!(screen(false, None, &[xterm]), PIPE);
        assert_eq!(screen(true, Some(120), &[("TERM", "dumb")]), PIPE);
        assert_eq!(screen(true, Some(120), &[]), PIPE, "nothing is known of it");
        assert_eq!(screen(true, Some(120), &[xterm]), drawn(120, true));
        assert_eq!(screen(true, Some(0), &[xterm]), drawn(80, true));
        assert_eq!(screen(true, None, &[xterm, ("COLUMNS", "50")]), drawn(50, true));
        assert_eq!(screen(true, Some(120), &[xterm, ("NO_COLOR", "1")]), drawn(120, false));
        assert_eq!(screen(true, Some(120), &[xterm, ("NO_COLOR", "")]), drawn(120, true));
    }

    #[test]
    fn a_sheet_is_plain_in_a_pipe_and_aligned_within_the_width_of_a_terminal() {
        let mut sheet = Sheet::new("lake.db.t\n");
        sheet.line("next", "now");
        sheet.line("  left alone", "a reason that is longer than what fits into one line of so narrow a screen");
        let plain = sheet.render(PIPE);
        assert!(plain.starts_with("lake.db.t\\n\n  next: now\n    left alone: a reason that"), "{plain}");
        assert_eq!(plain.lines().count(), 3);
        let shown = sheet.render(Screen { columns: Some(40), styled: true });
        assert!(shown.starts_with("\x1b[1mlake.db.t\\n\x1b[0m\n"), "{shown}");
        let lines: Vec<&str> = shown.lines().skip(1).collect();
        assert!(lines.len() > 3 && lines.iter().all(|line| line.chars().count() <= 40), "{shown}");
        let column = lines[0].find("now").expect("the value");
        assert_eq!(lines[1].find("a reason"), Some(column), "{shown}");
        assert!(lines[2].starts_with(&" ".repeat(column)), "{shown}");
    }

    #[test]
    fn a_table_is_for_terminals() {
        let rows = [vec!["lake.db.t".to_owned(), "3".to_owned()], vec!["lake.db.longer".to_owned(), "14".to_owned()]];
        assert_eq!(table(PIPE, &["table", "files"], &rows), None);
        let shown = table(Screen { columns: Some(60), styled: false }, &["table", "files"], &rows).expect("a table");
        let at = |line: usize, text: &str| shown.lines().nth(line).and_then(|l| l.find(text));
        assert!(at(0, "FILES").is_some() && at(0, "FILES") == at(1, "3") && at(1, "3") == at(2, "14"), "{shown}");
    }
}
