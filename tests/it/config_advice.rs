//! Keys in the wrong place, times that never come, notes and warnings.

use icewright::config::Config;

use super::config_files::{parse, resolve};

/// The key and the cure of the only problem of a file with this text in its policy (and in the defaults).
fn only_problem(defaults: &str, policy: &str) -> (String, String, String) {
    let text = format!(
        "catalogs.lake.uri = 'http://localhost'\n[defaults]\n{defaults}\n\
         [[policies]]\nname = 'a'\ntables = ['lake.a.*']\n{policy}\n"
    );
    let problems = Config::parse("test.toml", &text).expect_err("a mistake").0;
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    (problem.key.clone(), problem.message.clone(), problem.cure.clone())
}

#[test]
fn a_key_beside_the_actions_is_sent_where_it_belongs() {
    for (key, cure) in [
        ("min-input-files = 3", "`min-input-files` belongs under [policies.rewrite-data-files]"),
        ("rewrite_all = true", "`rewrite-all` belongs under [policies.rewrite-data-files]"),
        ("strategy = 'binpack'", "`strategy` belongs under [policies.rewrite-data-files]"),
        ("retain-last = 3", "`retain-last` belongs under [policies.expire-snapshots]"),
        ("unproven-min-age = '2d'", "`unproven-min-age` belongs under [policies.remove-orphan-files]"),
        (
            "older-than = '2d'",
            "`older-than` belongs under [policies.expire-snapshots] or [policies.remove-orphan-files]",
        ),
        ("max-commits = 2", "`max-commits` belongs under [policies.rewrite-data-files.partial-progress]"),
        ("partial-progress = { max-commits = 2 }", "`partial-progress` belongs under [policies.rewrite-data-files]"),
        ("evry = '1h'", "did you mean `every`?"),
    ] {
        assert_eq!(only_problem("", key).2, cure, "{key}");
        assert_eq!(only_problem(key, "").2, cure.replace("[policies.", "[defaults."), "{key}");
    }
    assert_eq!(only_problem("", "[policies.rewrite-data-files]\nrewrite_all = true").2, "did you mean `rewrite-all`?");
}

#[test]
fn times_that_never_come_are_refused() {
    for key in ["every", "commit-interval", "delay"] {
        let (path, message, cure) = only_problem("", &format!("{key} = '3651d'"));
        assert_eq!((path, message.as_str()), (format!("policies[0].{key}"), "is longer than ten years"));
        assert_eq!(cure, "use at most \"3650d\"");
    }
    parse("catalogs.lake.uri = 'http://localhost'\ndefaults = { every = '3650d' }\npolicies = []");
    let (_, message, _) = only_problem("", "delay = '999999999x'");
    assert!(message.contains("it is too large: at most 1000000 commit intervals"), "{message}");
}

#[test]
fn a_note_names_the_key_that_the_file_has() {
    let text = "catalogs.lake.uri = 'http://localhost'\n[defaults]\ncommit-interval = '10m'\nevery = '20m'\n\
                [[policies]]\nname = 'a'\ntables = ['lake.a.*']\ndelay = '3x'\n";
    let warnings = parse(text).warnings;
    let [alone, warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!(alone.key, "defaults.every");
    assert_eq!((warning.key.as_str(), warning.related[0].1.as_str()), ("policies[0].delay", "defaults.every"));
}

#[test]
fn two_names_of_one_catalog_are_told_and_whether_a_table_is_maintained_under_both() {
    let warnings = |second: &str, tables: &str| {
        let text = format!(
            "[catalogs.a]\nuri = 'http://localhost/c'\nwarehouse = 'w'\n[catalogs.b]\n{second}\n\
             [[policies]]\nname = 'p'\ntables = {tables}\n"
        );
        parse(&text).warnings
    };
    let same = "uri = 'http://localhost/c/'\nwarehouse = 'w'";
    for tables in ["['**']", "['a.**', 'b.**']", "['a.shop.*', 'b.**']", "['a.**', 'b.shop.orders']"] {
        let told = warnings(same, tables);
        let [warning] = told.as_slice() else { panic!("{tables}: {told:?}") };
        assert_eq!((warning.key.as_str(), warning.place.map(|place| place.line)), ("catalogs.b", Some(4)), "{tables}");
        assert!(warning.message.starts_with("is the catalog `a` again"), "{warning}");
        assert!(warning.message.contains("maintained twice"), "{warning}");
        assert_eq!(warning.related[0].1, "catalogs.a");
    }
    for tables in ["['a.**']", "['a.shop.*', 'b.logs.*']"] {
        let told = warnings(same, tables);
        let [warning] = told.as_slice() else { panic!("{tables}: {told:?}") };
        assert!(!warning.message.contains("maintained twice"), "{warning}");
    }
    for other in
        ["uri = 'http://localhost/d'\nwarehouse = 'w'", "uri = 'http://localhost/c'", &format!("{same}\nprefix = 'p'")]
    {
        assert_eq!(warnings(other, "['**']"), [], "{other}");
    }
}

#[test]
fn unreadable_neighbours_that_are_accepted_are_patterns_of_configured_catalogs() {
    let problems = |patterns: &str| {
        let text = format!(
            "[catalogs.lake]\nuri = 'http://localhost'\n[[policies]]\nname = 'p'\ntables = ['lake.**']\n\
             [policies.remove-orphan-files]\nignore-unreadable = {patterns}\n"
        );
        Config::parse("test.toml", &text).map_err(|problems| problems.to_string())
    };
    let loaded = problems("['lake.db.old', 'lake.\"a.b\".**']").expect("valid");
    let policy = resolve(&loaded.config, "lake.db.t");
    let shown = policy.settings().into_iter().find(|setting| setting.key == "remove-orphan-files.ignore-unreadable");
    let shown = shown.expect("shown by plan");
    assert_eq!(shown.value.as_deref(), Some("[\"lake.db.old\", \"lake.\\\"a.b\\\".**\"]"));
    assert_eq!(shown.origin, "policy \"p\" line 7");
    for (bad, said) in [
        ("['lak.db.old']", "did you mean `lake`?"),
        ("['lake.old']", "it has 2 levels"),
        ("'lake.db.old'", "array"),
        ("[1]", "string"),
    ] {
        let problem = problems(bad).expect_err(bad);
        assert!(problem.contains(said) && problem.contains("ignore-unreadable"), "{bad}: {problem}");
    }
}
