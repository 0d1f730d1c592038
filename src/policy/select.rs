//! Which tables a policy speaks of: patterns of table names, and which of two patterns is the more specific.

use std::fmt;

use crate::table::name::{PatternToken, TableName, split_levels};

/// A pattern of table names. `*` stands for any characters within one level, `**` for any number of whole levels (also
/// none). Quoting is that of [`TableName`]; nothing is a wildcard in quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePattern {
    text: String,
    levels: Vec<Level>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TablePatterns(pub Vec<TablePattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    Glob(Vec<PatternToken>),
    /// `**`.
    AnyLevels,
}

/// How narrowly a pattern describes a table; the greater, the more specific. Compared in this order:
/// levels without a wildcard, literal characters, and whether the number of levels is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    literal_levels: usize,
    literal_chars: usize,
    fixed_depth: bool,
}

impl TablePattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut levels = Vec::new();
        for tokens in split_levels(text)? {
            let stars = tokens.windows(2).any(|w| w == [PatternToken::Star, PatternToken::Star]);
            match tokens.as_slice() {
                [PatternToken::Star, PatternToken::Star] => levels.push(Level::AnyLevels),
                _ if stars => return Err("`**` must be a level of its own".into()),
                _ => levels.push(Level::Glob(tokens)),
            }
        }
        let any_depth = levels.contains(&Level::AnyLevels);
        if levels.len() < 3 && !any_depth {
            return Err(format!(
                "it has {} level{}, but every table has at least three: catalog.namespace.table",
                levels.len(),
                if levels.len() == 1 { "" } else { "s" }
            ));
        }
        Ok(Self { text: text.to_owned(), levels })
    }

    /// Whether `name` fits.
    pub fn matches(&self, name: &TableName) -> bool {
        let parts: Vec<&str> = name.levels().collect();
        // fits[j]: the pattern's levels so far can stand for the first j parts.
        let mut fits = vec![false; parts.len() + 1];
        fits[0] = true;
        for level in &self.levels {
            let mut next = vec![false; parts.len() + 1];
            for j in 0..=parts.len() {
                next[j] = match level {
                    Level::AnyLevels => fits[j] || (j > 0 && next[j - 1]),
                    Level::Glob(tokens) => j > 0 && fits[j - 1] && glob(tokens, parts[j - 1]),
                };
            }
            fits = next;
        }
        fits[parts.len()]
    }

    /// Whether every table fits that is in the namespace, at whatever depth; no levels mean the whole catalog.
    pub fn covers(&self, catalog: &str, namespace: &[String]) -> bool {
        let mut levels = self.levels.iter();
        for part in std::iter::once(catalog).chain(namespace.iter().map(String::as_str)) {
            match levels.next() {
                Some(Level::Glob(tokens)) if glob(tokens, part) => {}
                // What stands after `**` decides, unless nothing does.
                Some(Level::AnyLevels) => return levels.next().is_none(),
                Some(Level::Glob(_)) | None => return false,
            }
        }
        matches!((levels.next(), levels.next()), (Some(Level::AnyLevels), None))
    }

    /// Whether a table of the catalog could fit.
    pub fn may_match_catalog(&self, catalog: &str) -> bool {
        match self.levels.first() {
            Some(Level::Glob(tokens)) => glob(tokens, catalog),
            Some(Level::AnyLevels) | None => true,
        }
    }

    /// The catalog level, if it holds no wildcard.
    pub fn literal_catalog(&self) -> Option<String> {
        match self.levels.first() {
            Some(Level::Glob(tokens)) => literal(tokens),
            Some(Level::AnyLevels) | None => None,
        }
    }

    /// How narrow the pattern is.
    pub fn specificity(&self) -> Specificity {
        let globs = || {
            self.levels.iter().filter_map(|level| match level {
                Level::Glob(tokens) => Some(tokens),
                Level::AnyLevels => None,
            })
        };
        Specificity {
            literal_levels: globs().filter(|tokens| literal(tokens).is_some()).count(),
            literal_chars: globs().flatten().filter(|token| **token != PatternToken::Star).count(),
            fixed_depth: !self.levels.contains(&Level::AnyLevels),
        }
    }

    /// A name in `catalog` that fits, for checks before any table is known. `catalog` must fit itself.
    pub(crate) fn example(&self, catalog: &str) -> TableName {
        const ANY: &str = "any";
        let mut parts: Vec<String> = self
            .levels
            .iter()
            .filter_map(|level| match level {
                Level::Glob(tokens) => Some(tokens.iter().fold(String::new(), |mut text, token| {
                    match token {
                        PatternToken::Char(c) => text.push(*c),
                        PatternToken::Star => text.push_str(ANY),
                    }
                    text
                })),
                Level::AnyLevels => None,
            })
            .collect();
        let deep = self.levels.iter().position(|level| *level == Level::AnyLevels).unwrap_or(0);
        if self.levels.first() == Some(&Level::AnyLevels) {
            parts.insert(0, ANY.to_owned());
        }
        while parts.len() < 3 {
            parts.insert(deep, ANY.to_owned());
        }
        let table = parts.pop().unwrap_or_default();
        TableName { catalog: catalog.to_owned(), namespace: parts.split_off(1), table }
    }
}

impl fmt::Display for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn literal(tokens: &[PatternToken]) -> Option<String> {
    tokens
        .iter()
        .map(|token| match token {
            PatternToken::Char(c) => Some(*c),
            PatternToken::Star => None,
        })
        .collect()
}

/// Wildcard match within a level: greedy, going back to the last star only, so linear in practice and never exponential.
fn glob(tokens: &[PatternToken], text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let (mut t, mut c) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while c < chars.len() {
        match tokens.get(t) {
            Some(PatternToken::Star) => {
                last_star = Some((t, c));
                t += 1;
            }
            Some(PatternToken::Char(wanted)) if *wanted == chars[c] => {
                t += 1;
                c += 1;
            }
            _ => match last_star {
                Some((star, taken)) => {
                    last_star = Some((star, taken + 1));
                    t = star + 1;
                    c = taken + 1;
                }
                None => return false,
            },
        }
    }
    tokens[t..].iter().all(|token| *token == PatternToken::Star)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> TablePattern {
        TablePattern::parse(text).expect(text)
    }

    fn fits(text: &str, name: &str) -> bool {
        pattern(text).matches(&name.parse().expect(name))
    }

    #[test]
    fn one_star_stays_in_its_level_and_two_stars_cross_levels() {
        assert!(fits("lake.cdc.*", "lake.cdc.orders"));
        assert!(!fits("lake.cdc.*", "lake.cdc.eu.orders"));
        assert!(!fits("lake.cdc.*", "lake.cdc2.orders"));
        assert!(fits("lake.cdc.**", "lake.cdc.eu.west.orders"));
        assert!(fits("lake.**.orders", "lake.cdc.orders"));
        assert!(fits("lake.**.cdc.orders", "lake.cdc.orders"), "no level at all");
        assert!(!fits("lake.**.orders", "lake.cdc.orders2"));
        assert!(fits("**", "lake.cdc.orders"));
        assert!(fits("*.c*c.*o*d*", "lake.cdc.xorders"));
        assert!(fits("lake.**.a.**.t", "lake.x.a.a.y.t"));
        assert!(!fits("lake.**.a.**.t", "lake.x.y.t"));
    }

    #[test]
    fn quotes_make_dots_and_stars_literal() {
        assert!(fits("lake.\"web.logs\".*", "lake.\"web.logs\".t"));
        assert!(!fits("lake.\"web.logs\".*", "lake.web.logs.t"));
        assert!(fits("lake.\"web.\"*.t", "lake.\"web.x\".t"));
        assert!(fits("lake.\"*\".t", "lake.\"*\".t"));
        assert!(!fits("lake.\"*\".t", "lake.db.t"));
    }

    #[test]
    fn patterns_that_cannot_match_are_refused() {
        for (text, why) in [
            ("lake.cdc", "2 levels"),
            ("lake", "1 level,"),
            ("lake.a**.t", "level of its own"),
            ("lake..t", "a level is empty"),
            ("lake.{a,b}.t", "not a wildcard"),
        ] {
            let error = TablePattern::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn narrower_patterns_are_more_specific() {
        let order = [
            "**",
            "*.*.*",
            "*.*.orders",
            "lake.**",
            "lake.*.*",
            "lake.c*.*",
            "lake.cdc.**",
            "lake.cdc.*",
            "lake.cdc.o*",
            "lake.cdc.orders",
        ];
        // `*.*.orders` and `lake.**` both have one literal level; more literal characters win.
        let mut sorted = order.to_vec();
        sorted.sort_by_key(|text| pattern(text).specificity());
        assert_eq!(
            sorted,
            [
                "**",
                "*.*.*",
                "lake.**",
                "lake.*.*",
                "lake.c*.*",
                "*.*.orders",
                "lake.cdc.**",
                "lake.cdc.*",
                "lake.cdc.o*",
                "lake.cdc.orders"
            ]
        );
    }

    proptest! {
        /// The matcher agrees with a naive recursive one, and an example of a pattern always fits it.
        #[test]
        fn matching_is_what_the_definition_says(
            levels in prop::collection::vec("\\*\\*|[ab]{0,2}\\*?[ab]{1,2}|\\*", 3..6),
            name in prop::collection::vec("[ab]{1,4}", 3..6),
        ) {
            fn naive_level(p: &[char], s: &[char]) -> bool {
                match p.split_first() {
                    None => s.is_empty(),
                    Some(('*', rest)) => (0..=s.len()).any(|i| naive_level(rest, &s[i..])),
                    Some((c, rest)) => s.first() == Some(c) && naive_level(rest, &s[1..]),
                }
            }
            fn naive(p: &[String], s: &[String]) -> bool {
                match p.split_first() {
                    None => s.is_empty(),
                    Some((level, rest)) if level == "**" => (0..=s.len()).any(|i| naive(rest, &s[i..])),
                    Some((level, rest)) => s.split_first().is_some_and(|(head, tail)| {
                        let (l, h): (Vec<char>, Vec<char>) = (level.chars().collect(), head.chars().collect());
                        naive_level(&l, &h) && naive(rest, tail)
                    }),
                }
            }
            let parsed = pattern(&levels.join("."));
            let table: TableName = name.join(".").parse().expect("plain name");
            prop_assert_eq!(parsed.matches(&table), naive(&levels, &name));
            let catalog = parsed.literal_catalog().unwrap_or_else(|| match levels[0].as_str() {
                "**" => "any".into(),
                other => other.replace('*', "any"),
            });
            prop_assert!(parsed.may_match_catalog(&catalog));
            prop_assert!(parsed.matches(&parsed.example(&catalog)));
        }
    }

    #[test]
    fn a_pattern_covers_a_namespace_only_if_every_table_in_it_fits() {
        let covers = |pattern: &str, namespace: &[&str]| {
            let namespace: Vec<String> = namespace.iter().map(|level| (*level).to_owned()).collect();
            TablePattern::parse(pattern).expect("a pattern").covers("lake", &namespace)
        };
        for (pattern, namespace, expected) in [
            ("lake.**", &[][..], true),
            ("**", &[], true),
            ("l*.**", &["db"], true),
            ("lake.db.**", &["db"], true),
            ("lake.db.**", &["db", "eu"], true),
            ("lake.*.**", &["db"], true),
            ("lake.db.**", &[], false),
            ("lake.db.*", &["db"], false),
            ("lake.db.t", &["db"], false),
            ("lake.**.t", &["db"], false),
            ("lake.db.**.t", &["db"], false),
            ("pond.**", &[], false),
            ("lake.dc.**", &["db"], false),
        ] {
            assert_eq!(covers(pattern, namespace), expected, "{pattern} {namespace:?}");
        }
    }
}
