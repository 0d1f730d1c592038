//! Which metrics and labels an expression names. No parser: promtool has checked the grammar, so words are enough.

use std::collections::{BTreeMap, BTreeSet};

use icewright::error::ErrorKind;
use icewright::report::metrics::{ALL, MetricKind};

use super::{read, rules};

/// A label, and the values that it is compared with.
type Matcher = (String, Vec<String>);

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Metrics, each with its matchers.
    pub(super) metrics: Vec<(String, Vec<Matcher>)>,
    /// Labels of `by`, `on`, `without`, `ignoring`, `group_left` and `group_right`.
    pub(super) grouping: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

fn tokens(expr: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expr.chars().peekable();
    while let Some(first) = rest.next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if first == '"' {
            let mut text = String::new();
            while let Some(c) = rest.next().filter(|c| *c != '"') {
                text.push(c);
            }
            tokens.push(Token::Text(text));
        } else if is_word(first) {
            let mut word = String::from(first);
            while let Some(c) = rest.next_if(|c| is_word(*c)) {
                word.push(c);
            }
            tokens.push(Token::Word(word));
        } else if !first.is_whitespace() {
            tokens.push(Token::Sign(first));
        }
    }
    tokens
}

const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

pub(super) fn names(expr: &str) -> Names {
    let mut names = Names::default();
    let tokens = tokens(expr);
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        i += 1;
        let Token::Word(word) = token else { continue };
        // A function, an aggregation, or one that says first by what.
        let called = match tokens.get(i) {
            Some(Token::Sign('(')) => true,
            Some(Token::Word(next)) => ["by", "without"].contains(&next.as_str()),
            _ => false,
        };
        if called && LABEL_LISTS.contains(&word.as_str()) {
            let end = tokens[i..].iter().position(|t| *t == Token::Sign(')')).expect("a closing parenthesis");
            let labels = tokens[i..i + end].iter();
            names.grouping.extend(labels.filter_map(|t| if let Token::Word(w) = t { Some(w.clone()) } else { None }));
            i += end;
        } else if !called && !OPERATORS.contains(&word.as_str()) && !word.starts_with(|c: char| c.is_ascii_digit()) {
            let mut matchers = Vec::new();
            if tokens.get(i) == Some(&Token::Sign('{')) {
                let end = tokens[i..].iter().position(|t| *t == Token::Sign('}')).expect("a closing brace");
                matchers = read_matchers(&tokens[i + 1..i + end]);
                i += end;
            }
            // `1e9` and `5m` begin with a digit; what is between `[` and `]` does too.
            names.metrics.push((word.clone(), matchers));
        }
    }
    names
}

fn read_matchers(tokens: &[Token]) -> Vec<Matcher> {
    let each = tokens.split(|t| *t == Token::Sign(','));
    let matchers = each.filter(|t| !t.is_empty()).map(|matcher| {
        let (Some(Token::Word(label)), Some(Token::Text(value))) = (matcher.first(), matcher.last()) else {
            panic!("{matcher:?} is no matcher");
        };
        (label.clone(), value.split('|').map(str::to_owned).collect())
    });
    matchers.collect()
}

/// The metrics that there are, with their labels and the values of those that are known beforehand.
pub(super) struct Known {
    labels: BTreeMap<String, BTreeSet<String>>,
    /// The text that a daemon showed, for label values.
    golden: String,
}

/// Labels whose values are not known beforehand.
const OPEN_LABELS: [&str; 6] = ["job", "instance", "catalog", "namespace", "table", "operation"];

impl Known {
    pub(super) fn new() -> Self {
        let mut labels = BTreeMap::new();
        let of = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<String>>();
        for metric in ALL {
            labels.insert(metric.name.to_owned(), of(metric.labels));
            if metric.kind == MetricKind::Histogram {
                for part in ["_sum", "_count"] {
                    labels.insert(format!("{}{part}", metric.name), of(metric.labels));
                }
                let with_le: Vec<&str> = metric.labels.iter().copied().chain(["le"]).collect();
                labels.insert(format!("{}_bucket", metric.name), of(&with_le));
            }
        }
        // Of the process, of Prometheus itself, and of the Pushgateway.
        for (name, more) in [
            ("process_resident_memory_bytes", &[][..]),
            ("process_cpu_seconds_total", &[]),
            ("up", &[]),
            ("push_time_seconds", &["catalog", "table"]),
        ] {
            labels.insert(name.to_owned(), of(more));
        }
        let mut known = Self { labels, golden: read("tests/golden/metrics.txt") };
        for rule in rules().iter().filter(|rule| !rule.is_alert) {
            let labels = known.labels_of_result(&rule.expr);
            known.labels.insert(rule.name.clone(), labels);
        }
        known
    }

    /// What the outermost `by` leaves, or else every label of the metrics.
    fn labels_of_result(&self, expr: &str) -> BTreeSet<String> {
        let by = expr.split_once("by (").and_then(|(_, rest)| rest.split_once(')'));
        if let Some((labels, _)) = by {
            return labels.split(',').map(|label| label.trim().to_owned()).collect();
        }
        let metrics = names(expr).metrics;
        metrics.iter().filter_map(|(metric, _)| self.labels.get(metric)).flatten().cloned().collect()
    }

    /// What `expr` names and does not exist.
    pub(super) fn problems(&self, expr: &str) -> Vec<String> {
        let names = names(expr);
        let mut problems = Vec::new();
        let mut all = BTreeSet::from(["job".to_owned(), "instance".to_owned()]);
        if names.metrics.is_empty() {
            problems.push("no metric".to_owned());
        }
        for (metric, matchers) in &names.metrics {
            let Some(labels) = self.labels.get(metric) else {
                problems.push(format!("metric {metric}"));
                continue;
            };
            all.extend(labels.iter().cloned());
            for (label, values) in matchers {
                if !labels.contains(label) && !["job", "instance"].contains(&label.as_str()) {
                    problems.push(format!("label {label} of {metric}"));
                }
                let unknown = values.iter().filter(|value| !self.is_value(label, value));
                problems.extend(unknown.map(|value| format!("value {value} of label {label} of {metric}")));
            }
        }
        problems.extend(names.grouping.difference(&all).map(|label| format!("label {label} of no metric")));
        problems
    }

    fn is_value(&self, label: &str, value: &str) -> bool {
        // A commit may be refused; otherwise requests end well or by a kind of error.
        let of_requests = || value == "refused" || ErrorKind::ALL.iter().any(|kind| kind.as_str() == value);
        OPEN_LABELS.contains(&label)
            || self.golden.contains(&format!("{label}=\"{value}\""))
            || (label == "outcome" && of_requests())
    }
}

#[test]
fn an_expression_names_its_metrics_matchers_and_groupings() {
    let expr = r#"sum by (job, le) (rate(a_total{job=~"x",outcome!~"ok|bad"}[5m] offset 1d)) / on (job) group_left (v)
        max without (content) (b:c:max_1d) > 1.5e3 and clamp_min(time(), 0) unless x"#;
    let found = names(expr);
    let metrics: Vec<&str> = found.metrics.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(metrics, ["a_total", "b:c:max_1d", "x"]);
    let values = |list: &[&str]| list.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        found.metrics[0].1,
        [("job".to_owned(), values(&["x"])), ("outcome".to_owned(), values(&["ok", "bad"]))]
    );
    assert_eq!(found.grouping.into_iter().collect::<Vec<_>>(), ["content", "job", "le", "v"]);
}

#[test]
fn what_does_not_exist_is_found() {
    let known = Known::new();
    assert_eq!(known.problems(r#"rate(icewright_runs_total{action="rewrite-data-files"}[5m])"#), [""; 0]);
    for (expr, problem) in [
        ("icewright_table_datafiles", "metric icewright_table_datafiles"),
        (r#"icewright_table_data_files{action="x"}"#, "label action of icewright_table_data_files"),
        (r#"icewright_runs_total{outcome="sucess"}"#, "value sucess of label outcome of icewright_runs_total"),
        ("sum by (phase) (icewright_runs_total)", "label phase of no metric"),
        ("sum by (reason) (table:icewright_table_delete_files:min_1d)", "label reason of no metric"),
        ("icewright_request_duration_seconds_buckets", "metric icewright_request_duration_seconds_buckets"),
        ("1 + 1", "no metric"),
    ] {
        assert!(known.problems(expr).iter().any(|p| p == problem), "{expr}: {:?}", known.problems(expr));
    }
}
