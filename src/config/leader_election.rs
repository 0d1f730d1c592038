//! `[leader-election]`: which of several replicas works.

use std::time::Duration;

use super::reader::{Section, TomlValue};
use crate::policy::SettingReader;

/// Longest retry period: with the spread of a fifth and the longest round it stays below the minute in which a process must
/// show that it lives.
const RETRY_PERIOD_MAX: Duration = Duration::from_secs(30);

/// `[leader-election]`: a Kubernetes Lease decides which replica works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Whether to take part; if not, this process works whatever others do.
    pub enabled: bool,
    pub lease: String,
    /// Namespace of the Lease; `None`: the pod's.
    pub namespace: Option<String>,
    /// Others take over this long after the last renewal they saw; whole seconds.
    pub lease_duration: Duration,
    /// The leader stops this long after its last renewal; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between two tries; less than `renew_deadline`.
    pub retry_period: Duration,
}

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            lease: "icewright".into(),
            namespace: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

pub(super) fn read(mut section: Section<'_>) -> LeaderElectionConfig {
    let mut config = LeaderElectionConfig::default();
    section.set("enabled", &mut config.enabled, TomlValue::boolean);
    section.set("lease", &mut config.lease, dns_name);
    config.namespace = section.get("namespace", dns_name);
    section.set("lease-duration", &mut config.lease_duration, |item| {
        let time = item.duration()?;
        if time.subsec_nanos() != 0 {
            item.error("has a fraction of a second, which a Lease cannot hold", "use whole seconds");
        }
        Some(time)
    });
    section.set("renew-deadline", &mut config.renew_deadline, TomlValue::duration);
    section.set("retry-period", &mut config.retry_period, TomlValue::duration);
    // Where the file says one of the two, that is where to change it.
    let place = |a, b| section.key_place(a).or(section.key_place(b));
    let too_long = [
        (
            config.renew_deadline >= config.lease_duration,
            place("renew-deadline", "lease-duration"),
            "renew-deadline",
            "must be shorter than lease-duration: others take over then, and the leader must have stopped before",
            "the usual values are lease-duration = \"15s\", renew-deadline = \"10s\"",
        ),
        (
            config.retry_period * 2 > config.renew_deadline,
            place("retry-period", "renew-deadline"),
            "retry-period",
            "must be at most half of renew-deadline, or one lost answer ends leadership",
            "the usual values are renew-deadline = \"10s\", retry-period = \"2s\"",
        ),
        (
            config.retry_period > RETRY_PERIOD_MAX,
            place("retry-period", "retry-period"),
            "retry-period",
            "is longer than 30 s",
            "the usual value is \"2s\"",
        ),
    ];
    for (wrong, place, key, message, cure) in too_long {
        if let (true, Some(place)) = (wrong, place) {
            section.diagnostics.error(place, &section.path_of(key), message, cure);
        }
    }
    section.finish();
    config
}

/// A name as Kubernetes takes it for objects.
fn dns_name(item: &TomlValue<'_>) -> Option<String> {
    let text = item.str()?;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let usable =
        text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back()) && text.len() <= 253;
    if !usable {
        item.error(format!("\"{text}\" is no name for a Kubernetes object"), "use a-z, 0-9, `-` and `.`");
    }
    usable.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn problems(section: &str) -> String {
        let text = format!("catalogs.lake.uri = 'http://localhost'\n[leader-election]\n{section}");
        Config::parse("test.toml", &text).map(|_| String::new()).unwrap_or_else(|problems| problems.to_string())
    }

    #[test]
    fn times_must_leave_room_for_each_other() {
        assert_eq!(problems("enabled = true\nlease-duration = '60s'\nrenew-deadline = '40s'\nretry-period = '5s'"), "");
        for (section, message) in [
            ("renew-deadline = '15s'", "must be shorter than lease-duration"),
            ("lease-duration = '10s'", "must be shorter than lease-duration"),
            ("lease-duration = '15500ms'", "fraction of a second"),
            ("retry-period = '6s'", "at most half of renew-deadline"),
            ("lease-duration = '5m'\nrenew-deadline = '4m'\nretry-period = '31s'", "longer than 30 s"),
            ("retry-period = '0s'", "must be above 0"),
        ] {
            assert!(problems(section).contains(message), "{section}: {}", problems(section));
        }
    }

    #[test]
    fn names_are_kubernetes_names() {
        assert_eq!(problems("lease = 'ice-wright.blue2'\nnamespace = 'data'"), "");
        for bad in ["", "Ice", "a/b", "-a", "a-", "a b"] {
            assert!(problems(&format!("lease = '{bad}'")).contains("no name for a Kubernetes object"), "{bad}");
        }
    }
}
