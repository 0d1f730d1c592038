//! Fields of lines for people.

use std::fmt::{self, Write as _};

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// The message and fields as the library writes them, on one line: names and messages of others cannot begin a line that
/// looks like one of ours.
pub(super) struct TextFields;

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&visible(&text))
    }
}

/// Text that stays on its line: names and messages come from catalogs and files, and may hold anything.
pub(crate) fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_unsafe(c) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// Control characters, and those that turn the direction of the text around them.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn what_could_steer_a_terminal_is_shown_as_text() {
        assert_eq!(visible("a\x1b[2Jb\r\n\tü"), "a\\u{1b}[2Jb\\r\\n\\tü");
        assert_eq!(visible("x\u{202e}y\u{9b}z"), "x\\u{202e}y\\u{9b}z");
    }
}
