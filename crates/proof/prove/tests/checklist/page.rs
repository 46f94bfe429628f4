//! Holds `docs/checklist.md` against the tests that it names: every item has a check that holds and a fault that it
//! finds, and every test exists.

use std::path::Path;

const PAGE: &str = include_str!("../../../../../docs/checklist.md");

/// A row: its item, the tests that hold, and those that find an injected fault.
struct Row {
    item: String,
    held: Vec<String>,
    found: Vec<String>,
}

fn rows(page: &str) -> Vec<Row> {
    let tests = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect();
    let row = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [item, _, held, found] = cells[..] else { panic!("not four cells: {row}") };
        Row { item: item.into(), held: tests(held), found: tests(found) }
    };
    page.lines().filter(|line| line.starts_with("| N") || line.starts_with("| B")).map(row).collect()
}

/// Calls that fail where a faulty run passes.
const FINDS: &[&str] = &["assert_found(", "assert!(!", "found.iter().any(", "BTreeSet::from("];

/// The text of a test, from its name to the end; none where there is no such test.
fn body(test: &str) -> Option<String> {
    let (path, name) = test.split_once("::")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (_, after) = text.split_once(&format!("#[test]\nfn {name}() {{"))?;
    after.split_once("\n}\n").map(|(body, _)| body.to_string())
}

/// An error of a page.
fn problems(page: &str) -> Vec<String> {
    let rows = rows(page);
    let items = (1..=36).map(|number| format!("N{number}"));
    let missing = items.filter(|item| !rows.iter().any(|row| row.item == *item));
    let mut problems: Vec<String> = missing.map(|item| format!("{item} has no row")).collect();
    for Row { item, held, found } in &rows {
        for (tests, what) in [(held, "holds"), (found, "finds a fault")] {
            if tests.is_empty() {
                problems.push(format!("{item} has no test that {what}"));
            }
        }
        for test in held.iter().chain(found) {
            match body(test) {
                None => problems.push(format!("{item}: there is no {test}")),
                Some(body) if found.contains(test) && !FINDS.iter().any(|call| body.contains(call)) => {
                    problems.push(format!("{item}: {test} expects no finding"));
                }
                Some(_) => {}
            }
        }
    }
    problems
}

#[test]
fn every_item_has_tests_that_exist() {
    assert_eq!(problems(PAGE), Vec::<String>::new());
    let renamed = PAGE.replacen("clipping.rs::every_rank_clips_by_the_same_factor", "clipping.rs::another", 1);
    assert_eq!(problems(&renamed), ["N13: there is no crates/proof/prove/tests/checklist/clipping.rs::another"]);
    let without: Vec<&str> = PAGE.lines().filter(|line| !line.starts_with("| N8 ")).collect();
    assert_eq!(problems(&without.join("\n")), ["N8 has no row"]);
}

#[test]
fn a_row_without_a_fault_is_found() {
    let fault = "`crates/proof/prove/tests/checklist/recomputation.rs::masks_that_are_redrawn_are_found`";
    let holds = "`crates/proof/prove/tests/checklist/recomputation.rs::every_form_leaves_the_same_bits`";
    assert_eq!(problems(&PAGE.replacen(fault, "", 1)), ["N26 has no test that finds a fault"]);
    let expected = format!("N26: {} expects no finding", holds.trim_matches('`'));
    assert_eq!(problems(&PAGE.replacen(fault, holds, 1)), [expected.as_str(), expected.as_str()]);
}
