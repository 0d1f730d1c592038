//! Values of a policy as TOML: what `plan` and the API show can be written into the configuration as it is.

use std::time::Duration;

use super::{
    CommitInterval, PartitionCondition, PartitionSelection, PartitionTest, RewriteJobOrder, Schedule, Span,
    TablePatterns, Window,
};

const SIZE_UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
const TIME_UNITS: [(u128, &str); 6] =
    [(604_800_000, "w"), (86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];

/// A value that the configuration can say.
pub(super) trait AsToml {
    /// The value as it is written there; `None` if it is not said.
    fn as_toml(&self) -> Option<String>;
}

impl<T: AsToml> AsToml for Option<T> {
    fn as_toml(&self) -> Option<String> {
        self.as_ref().and_then(AsToml::as_toml)
    }
}

impl AsToml for bool {
    fn as_toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A number of things.
impl AsToml for usize {
    fn as_toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A size in bytes, in the largest unit that divides it.
impl AsToml for u64 {
    fn as_toml(&self) -> Option<String> {
        let unit = SIZE_UNITS.iter().find(|(factor, _)| *self > 0 && self.is_multiple_of(*factor));
        let (factor, name) = unit.unwrap_or(&(1, "B"));
        Some(quoted(&format!("{}{name}", self / factor)))
    }
}

impl AsToml for f64 {
    fn as_toml(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl AsToml for String {
    fn as_toml(&self) -> Option<String> {
        Some(quoted(self))
    }
}

impl AsToml for TablePatterns {
    fn as_toml(&self) -> Option<String> {
        Some(format!("[{}]", self.0.iter().map(|pattern| quoted(&pattern.to_string())).collect::<Vec<_>>().join(", ")))
    }
}

impl AsToml for Span {
    fn as_toml(&self) -> Option<String> {
        Some(match self {
            Self::Fixed(duration) => time(*duration),
            Self::Intervals(times) => quoted(&format!("{times}x")),
        })
    }
}

impl AsToml for CommitInterval {
    fn as_toml(&self) -> Option<String> {
        Some(match self {
            Self::Fixed(duration) => time(*duration),
            Self::Auto => quoted("auto"),
        })
    }
}

impl AsToml for Schedule {
    fn as_toml(&self) -> Option<String> {
        Some(match self {
            Self::Every(every) => time(*every),
            Self::Cron(text) => quoted(text),
        })
    }
}

impl AsToml for RewriteJobOrder {
    fn as_toml(&self) -> Option<String> {
        word(Self::WORDS, self)
    }
}

impl AsToml for PartitionSelection {
    fn as_toml(&self) -> Option<String> {
        Some(match self {
            Self::All => quoted("all"),
            Self::Window { column, window, format } => {
                let window = word(Window::WORDS, window).unwrap_or_default();
                format!("{{ column = {}, window = {window}{} }}", quoted(column), format_key(format))
            }
            Self::Conditions(conditions) => {
                format!("[{}]", conditions.iter().map(condition).collect::<Vec<_>>().join(", "))
            }
        })
    }
}

fn condition(PartitionCondition { column, test }: &PartitionCondition) -> String {
    let test = match test {
        PartitionTest::Equal(values) => match values.as_slice() {
            [value] => format!("equal = {}", quoted(value)),
            values => format!("equal = [{}]", values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ")),
        },
        PartitionTest::Older { than, format } => {
            format!("older = {}{}", than.as_toml().unwrap_or_default(), format_key(format))
        }
        PartitionTest::Newer { than, format } => {
            format!("newer = {}{}", than.as_toml().unwrap_or_default(), format_key(format))
        }
    };
    format!("{{ column = {}, {test} }}", quoted(column))
}

fn word<T: PartialEq>(words: &[(&str, T)], value: &T) -> Option<String> {
    words.iter().find(|(_, known)| known == value).map(|(word, _)| quoted(word))
}

fn format_key(format: &Option<String>) -> String {
    format.as_ref().map(|format| format!(", format = {}", quoted(format))).unwrap_or_default()
}

/// Numbers with units, largest first; nothing is rounded.
fn time(duration: Duration) -> String {
    let mut left = duration.as_millis();
    let mut parts = Vec::new();
    for (factor, unit) in TIME_UNITS {
        if left >= factor {
            parts.push(format!("{}{unit}", left / factor));
            left %= factor;
        }
    }
    quoted(&if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") })
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::{PolicySet, Setting};
    use super::*;

    fn toml(value: &impl AsToml) -> String {
        value.as_toml().expect("said")
    }

    #[test]
    fn values_are_written_as_the_configuration_reads_them() {
        assert_eq!(toml(&(512_u64 << 20)), "\"512MiB\"");
        assert_eq!(toml(&1_500_000_u64), "\"1500000B\"");
        assert_eq!((toml(&0_u64), toml(&(3_u64 << 40))), ("\"0B\"".into(), "\"3TiB\"".into()));
        let seconds = |n| toml(&Span::Fixed(Duration::from_secs(n)));
        assert_eq!(
            (seconds(5400), seconds(0), seconds(14 * 86400)),
            ("\"1h 30m\"".into(), "\"0s\"".into(), "\"2w\"".into())
        );
        assert_eq!((toml(&Span::Intervals(3.0)), toml(&Span::Intervals(2.5))), ("\"3x\"".into(), "\"2.5x\"".into()));
        assert_eq!(
            (toml(&0.3), toml(&1.0), toml(&true), toml(&7_usize)),
            ("0.3".into(), "1.0".into(), "true".into(), "7".into())
        );
        assert_eq!(toml(&"a\"\\\n".to_owned()), "\"a\\\"\\\\\\u000A\"");
        assert_eq!(toml(&Schedule::Cron("0 3 * * *".into())), "\"0 3 * * *\"");
        let format = Some("%Y-%m-%d %H".to_owned());
        let window = PartitionSelection::Window { column: "hour".into(), window: Window::PreviousHour, format };
        assert_eq!(toml(&window), "{ column = \"hour\", window = \"previous-hour\", format = \"%Y-%m-%d %H\" }");
        let than = Span::Fixed(Duration::from_secs(86400));
        let conditions = PartitionSelection::Conditions(vec![
            PartitionCondition { column: "d".into(), test: PartitionTest::Older { than, format: None } },
            PartitionCondition { column: "r".into(), test: PartitionTest::Equal(vec!["eu".into(), "us".into()]) },
        ]);
        assert_eq!(
            toml(&conditions),
            "[{ column = \"d\", older = \"1d\" }, { column = \"r\", equal = [\"eu\", \"us\"] }]"
        );
    }

    #[test]
    fn every_setting_has_its_value_and_origin() {
        let settings = PolicySet::default().merge(&[]).settings();
        assert_eq!(settings.len(), Setting::KEYS.len());
        let value = |key: &str| settings.iter().find(|s| s.key == key).unwrap_or_else(|| panic!("{key}")).value.clone();
        assert_eq!(value("every"), Some("\"1h\"".into()));
        assert_eq!(value("rewrite-data-files.target-file-size"), None);
        assert_eq!(value("rewrite-data-files.max-file-group-size"), Some("\"100GiB\"".into()));
        assert_eq!(value("remove-orphan-files.unproven-min-age"), Some("\"1d\"".into()));
        assert!(settings.iter().all(|s| s.origin == "built-in default"));
    }
}
