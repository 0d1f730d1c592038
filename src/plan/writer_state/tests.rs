use super::*;

#[test]
fn the_operations_guide_lists_every_known_writer_with_its_key() {
    let guide = include_str!("../../../docs/operations.md");
    for (name, key) in known::progress_keys() {
        let row = |line: &&str| line.starts_with('|') && line.contains(name) && line.contains(&format!("`{key}"));
        assert!(guide.lines().find(row).is_some(), "docs/operations.md has no row for {name} with {key}");
    }
}

#[test]
fn what_a_writer_wrote_is_shown_on_one_line_of_bounded_length() {
    assert_eq!(shown("query-1"), "query-1");
    assert_eq!(shown("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
    assert_eq!(shown(&"é".repeat(81)), format!("{}…", "é".repeat(80)));
}
