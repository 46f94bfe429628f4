//! Checks the pages that lead readers to the code: the table "Where is ...?" and the recipes for extensions.

use crate::finding::Finding;
use crate::places::exists;
use crate::repository::Repository;

/// The page with the table.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The heading of the table.
const HEADING: &str = "## Where is ...?";
/// The least number of questions in the table.
const QUESTIONS: usize = 25;
/// The page of recipes.
const EXTENDING: &str = "docs/extending.md";
/// The headings of the recipes.
const RECIPES: [&str; 8] = [
    "A transport",
    "A device",
    "A collective",
    "An operation",
    "An axis",
    "A schedule",
    "A model family",
    "A checkpoint format",
];

/// Rows and recipes that are missing, and places in them that do not exist.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let text = |path: &str| repository.file(path).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let mut findings = table(repository, text(ARCHITECTURE));
    findings.extend(recipes(repository, text(EXTENDING)));
    findings
}

fn table(repository: &Repository, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let lines = lines.take_while(|(_, line)| !line.starts_with("## "));
    let rows: Vec<(usize, &str)> = lines.filter(|(_, line)| line.starts_with("| ")).skip(1).collect();
    let finding = |line: usize, message: String| Finding { path: ARCHITECTURE.into(), line, message };
    let mut findings = vec![];
    if rows.len() < QUESTIONS {
        findings.push(finding(1, format!("\"{HEADING}\" must have {QUESTIONS} rows; got {}", rows.len())));
    }
    for (index, row) in rows {
        let places = places(row);
        if places.is_empty() {
            findings.push(finding(index + 1, "the row must name a place in backticks".into()));
        }
        let missing = places.into_iter().filter(|place| !exists(repository, place));
        findings.extend(missing.map(|place| finding(index + 1, not_there(place))));
    }
    findings
}

fn recipes(repository: &Repository, text: &str) -> Vec<Finding> {
    let finding = |line: usize, message: String| Finding { path: EXTENDING.into(), line, message };
    let mut findings = vec![];
    for recipe in RECIPES {
        if !text.lines().any(|line| line == format!("## {recipe}")) {
            findings.push(finding(1, format!("the recipe \"## {recipe}\" is missing")));
        }
    }
    for (index, line) in text.lines().enumerate() {
        let missing = places(line).into_iter().filter(|place| !exists(repository, place));
        findings.extend(missing.map(|place| finding(index + 1, not_there(place))));
    }
    findings
}

fn not_there(place: &str) -> String {
    format!("`{place}` must be a path or an item of a file (`path::item`)")
}

/// The places of a line: spans in backticks with a folder and without a space.
fn places(line: &str) -> Vec<&str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| span.contains('/') && !span.contains(' ')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::SourceFile;

    fn findings(architecture: &str, extending: &str) -> Vec<String> {
        let files = vec![
            SourceFile::of(ARCHITECTURE, architecture),
            SourceFile::of(EXTENDING, extending),
            SourceFile::of("a/b.rs", "pub fn one() {}\n"),
        ];
        check(&Repository { files }).iter().map(Finding::to_string).collect()
    }

    fn all_recipes() -> String {
        RECIPES.iter().map(|recipe| format!("## {recipe}\n\n`a/b.rs`, `cargo test -p a/b`\n")).collect()
    }

    fn all_rows() -> String {
        format!("{HEADING}\n\n| question | place |\n|---|---|\n{}", "| x | `a/b.rs::one` |\n".repeat(QUESTIONS))
    }

    #[test]
    fn whole_pages_pass() {
        assert_eq!(findings(&all_rows(), &all_recipes()), [""; 0]);
    }

    #[test]
    fn missing_rows_recipes_and_places_are_named() {
        let rows = all_rows().replacen("| x | `a/b.rs::one` |\n", "| x | nothing |\n| y | `a/b.rs::two` |\n", 2);
        let rows = rows.replacen("| x | `a/b.rs::one` |\n", "", 3);
        let recipes = all_recipes().replacen("## A device", "## A gadget", 1).replacen("a/b.rs", "a/c.rs", 1);
        assert_eq!(
            findings(&rows, &recipes),
            [
                "ARCHITECTURE.md:1: \"## Where is ...?\" must have 25 rows; got 24",
                "ARCHITECTURE.md:5: the row must name a place in backticks",
                "ARCHITECTURE.md:6: `a/b.rs::two` must be a path or an item of a file (`path::item`)",
                "ARCHITECTURE.md:7: the row must name a place in backticks",
                "ARCHITECTURE.md:8: `a/b.rs::two` must be a path or an item of a file (`path::item`)",
                "docs/extending.md:1: the recipe \"## A device\" is missing",
                "docs/extending.md:3: `a/c.rs` must be a path or an item of a file (`path::item`)",
            ]
        );
    }
}
