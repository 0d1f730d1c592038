//! Which policies apply to a table, and what they say together.

use std::collections::BTreeMap;

use super::check::{Severity, check};
use super::setting::{Layer, Origin, Setting, key};
use super::{CommitInterval, RemoveOrphanFilesPolicy, Schedule, Span, TablePolicy};
use crate::error::{Error, ErrorKind, Result};
use crate::table::TableName;

/// All policies of a configuration, in file order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicySet {
    /// The `[defaults]` section.
    pub defaults: Layer,
    /// `[[policies]]`.
    pub policies: Vec<Layer>,
}

/// What is wanted for one table, and where each value was said.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedPolicy {
    /// The merged policy.
    pub policy: TablePolicy,
    /// The origin of each value, by key path (`rewrite-data-files.target-file-size`). Every key is present.
    pub origins: BTreeMap<&'static str, Origin>,
    /// The policies that matched, least specific first.
    pub names: Vec<String>,
}

/// A setting of a resolved policy.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SettingValue {
    /// The key path, relative to the policy; `every` or `schedule`, whichever is meant.
    pub key: &'static str,
    /// The value as it would be written in TOML. `null`: nothing is said, and it follows from the table or other settings.
    #[schema(required)]
    pub value: Option<String>,
    /// Where it was said.
    pub origin: String,
}

impl ResolvedPolicy {
    /// Every setting with its value and where that was said, in the order of the configuration reference.
    pub fn settings(&self) -> Vec<SettingValue> {
        let shown = |setting: &Setting| SettingValue {
            key: self.key_in_file(setting.key),
            value: (setting.as_toml)(&self.policy),
            origin: self.origin(setting.key).to_string(),
        };
        Setting::ALL.iter().map(shown).collect()
    }

    /// The key that stands in the file: two keys set the schedule.
    pub(crate) fn key_in_file(&self, key: &'static str) -> &'static str {
        if key == key::SCHEDULE && matches!(self.policy.schedule, Schedule::Every(_)) { "every" } else { key }
    }

    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::BuiltIn)
    }
}

impl PolicySet {
    /// What is wanted for a table; `None` if no policy names it, and it is then not maintained.
    /// [`ErrorKind::Config`] if the policies that meet on this table contradict each other.
    pub fn resolve(&self, name: &TableName) -> Result<Option<ResolvedPolicy>> {
        let layers = self.matching(name);
        if layers.is_empty() {
            return Ok(None);
        }
        let resolved = self.merge(&layers);
        let contradictions: Vec<String> = check(&resolved)
            .into_iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| {
                let said = |key: &str| format!("{key}: {}", resolved.origin(key));
                let other = finding.other.map(|key| format!(", {}", said(key))).unwrap_or_default();
                format!("{} ({}{other})", finding.message, said(finding.key))
            })
            .collect();
        if contradictions.is_empty() {
            return Ok(Some(resolved));
        }
        Err(Error::new(
            ErrorKind::Config,
            format!("the policies that match {name} contradict each other: {}", contradictions.join("; ")),
        ))
    }

    /// The policies that match, least specific first; ties in file order, so that the later one is heard last.
    pub(crate) fn matching(&self, name: &TableName) -> Vec<&Layer> {
        let mut matching: Vec<_> = self
            .policies
            .iter()
            .filter_map(|layer| {
                let patterns = layer.tables.iter().map(|pattern| &pattern.value);
                let best = patterns.filter(|p| p.matches(name)).map(|p| p.specificity()).max()?;
                Some((best, layer))
            })
            .collect();
        matching.sort_by_key(|(specificity, _)| *specificity);
        matching.into_iter().map(|(_, layer)| layer).collect()
    }

    /// Built-in defaults, then `[defaults]`, then the given policies: the last one to say something is heard.
    pub(crate) fn merge(&self, layers: &[&Layer]) -> ResolvedPolicy {
        let mut policy = TablePolicy::default();
        let mut origins: BTreeMap<_, _> = Setting::KEYS.iter().map(|key| (*key, Origin::BuiltIn)).collect();
        for layer in std::iter::once(&self.defaults).chain(layers.iter().copied()) {
            for setting in Setting::ALL {
                let Some(place) = layer.said.get(setting.key) else { continue };
                origins.insert(setting.key, layer.origin(*place));
                (setting.copy)(&layer.values, &mut policy);
            }
        }
        raise_unproven_min_age(&mut policy, &mut origins);
        let names = layers.iter().filter_map(|layer| layer.name.as_ref().map(|name| name.to_string())).collect();
        ResolvedPolicy { policy, origins, names }
    }
}

/// Someone who asks for a longer `older-than` than the built-in `unproven-min-age` means both.
fn raise_unproven_min_age(policy: &mut TablePolicy, origins: &mut BTreeMap<&'static str, Origin>) {
    if origins.get(key::UNPROVEN_MIN_AGE) != Some(&Origin::BuiltIn) {
        return;
    }
    let RemoveOrphanFilesPolicy { older_than, unproven_min_age, .. } = policy.remove_orphan_files;
    let longer = match (older_than, unproven_min_age, policy.commit_interval) {
        (Span::Fixed(a), Span::Fixed(b), _) => a > b,
        (a, b, CommitInterval::Fixed(interval)) => a.resolve(interval) > b.resolve(interval),
        // Unknown until the interval is; the ages are compared again then.
        (_, _, CommitInterval::Auto) => false,
    };
    if longer {
        policy.remove_orphan_files.unproven_min_age = older_than;
        let origin = origins.get(key::ORPHAN_OLDER_THAN).cloned().unwrap_or(Origin::BuiltIn);
        origins.insert(key::UNPROVEN_MIN_AGE, origin);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Place, Placed, TablePattern};

    const LINE_7: Place = Place { line: 7, column: 1, width: 1 };

    const HOUR: Duration = Duration::from_secs(3600);

    fn defaults(keys: &[&'static str], say: impl FnOnce(&mut TablePolicy)) -> PolicySet {
        let mut defaults = Layer { said: keys.iter().map(|key| (*key, LINE_7)).collect(), ..Layer::default() };
        say(&mut defaults.values);
        PolicySet { defaults, policies: Vec::new() }
    }

    #[test]
    fn the_unproven_age_follows_a_longer_age_unless_it_was_said() {
        let unproven = |set: &PolicySet| set.merge(&[]).policy.remove_orphan_files.unproven_min_age;
        let fixed = |hours: u32| Span::Fixed(HOUR * hours);
        let older =
            |hours| defaults(&[key::ORPHAN_OLDER_THAN], |policy| policy.remove_orphan_files.older_than = fixed(hours));
        assert_eq!(unproven(&older(72)), fixed(72));
        assert_eq!(unproven(&older(2)), fixed(24));
        let both = defaults(&[key::ORPHAN_OLDER_THAN, key::UNPROVEN_MIN_AGE], |policy| {
            policy.remove_orphan_files.older_than = fixed(72);
            policy.remove_orphan_files.unproven_min_age = fixed(80);
        });
        assert_eq!(unproven(&both), fixed(80));
        let slow = defaults(&[key::COMMIT_INTERVAL], |policy| {
            policy.commit_interval = CommitInterval::Fixed(HOUR * 20);
        });
        assert_eq!(unproven(&slow), Span::Intervals(2.0), "two intervals are 40 hours");
        let raised = older(72).merge(&[]);
        assert_eq!(raised.origins["remove-orphan-files.unproven-min-age"].to_string(), "[defaults] line 7");
    }

    #[test]
    fn ages_are_never_shorter_than_an_interval_or_out_of_order() {
        let policy = |older_than, unproven_min_age| RemoveOrphanFilesPolicy {
            older_than,
            unproven_min_age,
            ..RemoveOrphanFilesPolicy::default()
        };
        let interval = HOUR * 2;
        assert_eq!(RemoveOrphanFilesPolicy::default().ages(HOUR), (HOUR * 2, HOUR * 24));
        assert_eq!(RemoveOrphanFilesPolicy::default().ages(HOUR * 20), (HOUR * 40, HOUR * 40));
        let short = policy(Span::Fixed(HOUR), Span::Fixed(Duration::ZERO));
        assert_eq!(short.ages(interval), (interval, interval));
        assert_eq!(policy(Span::Intervals(0.5), Span::Intervals(3.0)).ages(interval), (interval, HOUR * 6));
        let forever = policy(Span::Intervals(1e300), Span::Fixed(HOUR)).ages(HOUR);
        assert_eq!(forever, (Duration::MAX, Duration::MAX), "too long to say, not a panic");
    }

    proptest! {
        /// Whatever policies say, the value heard is that of the most specific one, and the later one of equals.
        #[test]
        fn the_most_specific_policy_is_heard(which in prop::collection::vec((0usize..5, 1usize..100), 0..8)) {
            let patterns = ["**", "lake.**", "lake.*.orders", "lake.cdc.*", "lake.cdc.orders"];
            let place = Place { line: 1, column: 1, width: 1 };
            let layer = |(i, (pattern, value)): (usize, &(usize, usize))| {
                let pattern = TablePattern::parse(patterns[*pattern]).expect("a pattern");
                let mut layer = Layer {
                    name: Some(Arc::from(format!("p{i}"))),
                    tables: vec![Placed { value: pattern, place }],
                    said: [(key::RETAIN_LAST, place)].into(),
                    ..Layer::default()
                };
                layer.values.expire_snapshots.retain_last = *value;
                layer
            };
            let layers = which.iter().enumerate().map(layer).collect();
            let set = PolicySet { defaults: Layer::default(), policies: layers };
            let resolved = set.resolve(&"lake.cdc.orders".parse().expect("a name")).expect("no contradiction");
            // Both have two literal levels; `orders` has more characters than `cdc`.
            let rank = |pattern: usize| [0, 1, 3, 2, 4][pattern];
            let wanted = which.iter().enumerate().max_by_key(|(i, (pattern, _))| (rank(*pattern), *i));
            match (resolved, wanted) {
                (None, None) => {}
                (Some(resolved), Some((i, (_, value)))) => {
                    prop_assert_eq!(resolved.policy.expire_snapshots.retain_last, *value);
                    let origin = resolved.origins["expire-snapshots.retain-last"].to_string();
                    prop_assert_eq!(origin, format!("policy \"p{i}\" line 1"));
                    prop_assert_eq!(resolved.names.len(), which.len());
                }
                (given, wanted) => prop_assert!(false, "{given:?} instead of {wanted:?}"),
            }
        }
    }
}
