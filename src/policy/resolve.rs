//! Which policies apply to a table, and what they say together.

use std::collections::BTreeMap;

use super::check::{Severity, check};
use super::setting::{Layer, Origin, Setting};
use super::{CommitInterval, RemoveOrphanFilesPolicy, Span, TableName, TablePolicy};
use crate::error::{Error, ErrorKind, Result};

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
    pub origins: BTreeMap<String, Origin>,
    /// The policies that matched, least specific first.
    pub names: Vec<String>,
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
                let said = |key: &str| format!("{key}: {}", resolved.origins.get(key).unwrap_or(&Origin::BuiltIn));
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
        let mut origins: BTreeMap<String, Origin> =
            Setting::KEYS.iter().map(|key| ((*key).to_owned(), Origin::BuiltIn)).collect();
        for layer in std::iter::once(&self.defaults).chain(layers.iter().copied()) {
            for setting in &layer.settings {
                origins.insert(setting.value.key().to_owned(), layer.origin(setting.place));
                setting.value.clone().apply(&mut policy);
            }
        }
        raise_unproven_min_age(&mut policy, &mut origins);
        let names = layers.iter().filter_map(|layer| layer.name.as_ref().map(|name| name.to_string())).collect();
        ResolvedPolicy { policy, origins, names }
    }
}

/// Someone who asks for a longer `older-than` than the built-in `unproven-min-age` means both.
fn raise_unproven_min_age(policy: &mut TablePolicy, origins: &mut BTreeMap<String, Origin>) {
    const UNPROVEN: &str = "remove-orphan-files.unproven-min-age";
    const OLDER: &str = "remove-orphan-files.older-than";
    if origins.get(UNPROVEN) != Some(&Origin::BuiltIn) {
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
        let origin = origins.get(OLDER).cloned().unwrap_or(Origin::BuiltIn);
        origins.insert(UNPROVEN.to_owned(), origin);
    }
}
