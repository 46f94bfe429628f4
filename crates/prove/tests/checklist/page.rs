//! Holds `docs/checklist.md` against the tests that it names: every item has one, and every one is there.

use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/checklist.md");

/// Items of experts and context parallelism, which do not exist here yet.
const NOT_HERE: &[usize] = &[5, 6, 21, 23];

/// `(item, what stands in the column of tests)` of every row.
fn rows(page: &str) -> Vec<(String, Vec<String>)> {
    let rows = page.lines().filter(|line| line.starts_with("| N") || line.starts_with("| B"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [item, _, tests] = cells[..] else { panic!("not three cells: {row}") };
        (item.to_string(), tests.split('`').skip(1).step_by(2).map(String::from).collect())
    })
    .collect()
}

/// What is wrong with a page.
fn problems(page: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows = rows(page);
    let items = (1..=36).filter(|number| !NOT_HERE.contains(number)).map(|number| format!("N{number}"));
    let missing =
        items.filter(|item| !rows.iter().any(|(row, _)| row == item)).map(|item| format!("{item} has no row"));
    let untested = rows.iter().filter(|(_, tests)| tests.is_empty()).map(|(item, _)| format!("{item} has no test"));
    let is_there = |test: &str| {
        let (path, name) = test.split_once("::").expect("path::test");
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        text.contains(&format!("#[test]\nfn {name}() {{"))
    };
    let lost = rows.iter().flat_map(|(item, tests)| tests.iter().map(move |test| (item, test)));
    let lost = lost.filter(|(_, test)| !is_there(test)).map(|(item, test)| format!("{item}: there is no {test}"));
    missing.chain(untested).chain(lost).collect()
}

#[test]
fn every_item_has_tests_that_exist() {
    assert_eq!(problems(PAGE), Vec::<String>::new());
    let renamed = PAGE.replacen("::the_reported_norm_is_the_one_that_clips", "::another", 1);
    assert_eq!(problems(&renamed), ["N15: there is no crates/prove/tests/checklist/one_norm.rs::another"]);
    let without: Vec<&str> = PAGE.lines().filter(|line| !line.starts_with("| N8 ")).collect();
    assert_eq!(problems(&without.join("\n")), ["N8 has no row"]);
}
