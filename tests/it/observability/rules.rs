//! The rule files, by promtool and against the documentation.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::promql::Known;
use super::{DOCS, RULE_FILES, list, read, root, rules, text, yaml};
use crate::interop::process::output;

const TEST_FILES: [&str; 4] = ["alerts.test.yaml", "alerts.days.test.yaml", "healthy.test.yaml", "recording.test.yaml"];

fn promtool(arguments: &[&str]) -> String {
    let mut command = Command::new("promtool");
    let output = output(command.args(arguments).current_dir(root("deploy/prometheus")));
    String::from_utf8(output.stdout).expect("text")
}

fn alerts() -> BTreeSet<String> {
    rules().into_iter().filter(|rule| rule.is_alert).map(|rule| rule.name).collect()
}

#[test]
fn promtool_accepts_the_rules_and_the_example_configuration() {
    promtool(&[&["check", "rules"], &RULE_FILES[..]].concat());
    let said = promtool(&["check", "config", "prometheus.yml"]);
    assert!(said.contains("SUCCESS: 2 rule files found"), "{said}");
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    promtool(&[&["test", "rules"], &TEST_FILES[..]].concat());

    let (mut fires, mut silent, mut recorded) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for file in TEST_FILES {
        let content = yaml(&format!("deploy/prometheus/{file}"));
        for test in list(&content, "tests") {
            let cases = |kind| test.get(kind).and_then(Value::as_array).into_iter().flatten();
            for case in cases("alert_rule_test") {
                let name = text(case, "alertname").to_owned();
                let healthy = file.starts_with("healthy");
                match list(case, "exp_alerts") {
                    [] if healthy => _ = silent.insert(name),
                    [] => {}
                    // Beside what fires there is something of the same kind that must not.
                    alerts => {
                        let metric = |series: &Value| text(series, "series").split('{').next().map(str::to_owned);
                        let inputs: Vec<_> = list(test, "input_series").iter().map(metric).collect();
                        let alone = inputs.len() <= alerts.len() && name != "IcewrightAbsent";
                        assert!(!alone, "{name}: no near miss");
                        fires.insert(name);
                    }
                }
            }
            recorded.extend(cases("promql_expr_test").map(|case| text(case, "expr").to_owned()));
        }
    }
    assert_eq!(fires, alerts());
    assert_eq!(silent, alerts());
    let records: BTreeSet<String> = rules().into_iter().filter(|rule| !rule.is_alert).map(|rule| rule.name).collect();
    assert_eq!(recorded, records);
}

#[test]
fn every_rule_names_only_metrics_and_labels_that_exist() {
    let known = Known::new();
    let problems: Vec<String> = rules()
        .iter()
        .flat_map(|rule| known.problems(&rule.expr).into_iter().map(|problem| format!("{}: {problem}", rule.name)))
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn every_alert_says_how_grave_it_is_what_happened_and_where_to_read_on() {
    let seconds = |text: &str| -> u64 {
        let (number, unit) = text.split_at(text.len() - 1);
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86400,
            _ => panic!("{text}"),
        };
        number.parse::<u64>().expect("a number") * unit
    };
    let example = yaml("deploy/prometheus/prometheus.yml");
    let scrape = seconds(text(&example["global"], "scrape_interval"));
    let mut pages = BTreeSet::new();
    for alert in rules().iter().filter(|rule| rule.is_alert) {
        let (rule, name) = (&alert.rule, &alert.name);
        assert!(seconds(text(rule, "for")) >= 2 * scrape, "{name}");
        match text(&rule["labels"], "severity") {
            "critical" => _ = pages.insert(name.clone()),
            other => assert_eq!(other, "warning", "{name}"),
        }
        let annotations = &rule["annotations"];
        assert!(!text(annotations, "summary").ends_with('.'), "{name}");
        assert!(text(annotations, "description").ends_with('.'), "{name}");
        assert_eq!(text(annotations, "runbook_url"), format!("{DOCS}#{}", name.to_lowercase()));
        // Charts that render the file as a template of their own would trip over anything else.
        for (_, annotation) in annotations.as_object().expect("an object") {
            let annotation = annotation.as_str().expect("text");
            assert_eq!(annotation.matches("{{").count(), annotation.matches("}}").count(), "{name}");
        }
    }
    let expected = ["IcewrightAbsent", "IcewrightMostTablesFailing", "IcewrightNoLeader", "IcewrightTwoLeaders"]
        .map(str::to_owned);
    assert_eq!(pages, BTreeSet::from(expected), "few alerts are worth waking somebody");
}

#[test]
fn every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() {
    let page = read("docs/operations.md");
    let sections: Vec<(&str, &str)> = page
        .split("\n### ")
        .skip(1)
        .filter_map(|s| s.split_once('\n'))
        .filter(|(h, _)| h.starts_with("Icewright"))
        .collect();
    let headings: BTreeSet<String> = sections.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    assert_eq!(headings.len(), sections.len(), "a heading stands twice");
    assert_eq!(headings, alerts());
    // Also where the text speaks of another alert, as in the advice on inhibition.
    let words = page.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.starts_with("Icewright"));
    assert_eq!(words.map(str::to_owned).collect::<BTreeSet<_>>(), alerts());
    for (heading, section) in sections {
        let section = section.split("\n## ").next().unwrap_or_default();
        for part in ["**Means.**", "**Look.**", "**Do.**"] {
            assert!(section.contains(part), "{heading}: {part}");
        }
    }
}
