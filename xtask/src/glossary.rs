//! Checks that the glossary names places that exist.

use crate::finding::Finding;
use crate::places::exists;
use crate::repository::Repository;

/// The glossary.
pub const PATH: &str = "docs/glossary.md";
/// Introduces the places of an entry.
const DEFINED_IN: &str = "Defined in ";

/// Entries without a place, and places that do not exist.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let text = repository.file(PATH).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let mut findings = Vec::new();
    for (line, entry) in entries(text) {
        let mut report = |message: String| findings.push(Finding { path: PATH.into(), line, message });
        let Some((_, places)) = entry.split_once(DEFINED_IN) else {
            report(format!("the entry must end with \"{DEFINED_IN}`PLACE`.\""));
            continue;
        };
        let places: Vec<&str> = places.split('`').skip(1).step_by(2).collect();
        if places.is_empty() {
            report(format!("\"{DEFINED_IN}\" must name a place in backticks"));
        }
        for place in places.iter().filter(|place| !exists(repository, place)) {
            report(format!("`{place}` must be a path, an item of a file (`path::item`) or a key of a run file"));
        }
    }
    findings
}

/// The entries, lines joined, each with its first line counted from 1.
fn entries(text: &str) -> Vec<(usize, String)> {
    let mut entries: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let begins = line.starts_with("- **");
        inside = begins || inside && line.starts_with("  ");
        if begins {
            entries.push((index + 1, line.to_string()));
        } else if let Some((_, entry)) = entries.last_mut().filter(|_| inside) {
            entry.push(' ');
            entry.push_str(line.trim());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::SourceFile;

    fn findings(glossary: &str) -> Vec<String> {
        let files = vec![
            SourceFile::of(PATH, glossary),
            SourceFile::of(crate::places::KEYS, "## [train]\n| `steps` | x |\n## [run]\n| `ranks` | x |\n"),
            SourceFile::of(
                "a.rs",
                "pub struct Cell<'a> {\n    pub side: u8,\n}\nenum B {\n    One,\n}\nfn f() {\n    Two::x();\n}\n",
            ),
        ];
        check(&Repository { files }).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn places_that_exist_are_accepted() {
        for place in ["a.rs", "a.rs::Cell", "a.rs::side", "a.rs::One", "a.rs::f", "train.steps", "run.ranks"] {
            assert_eq!(
                findings(&format!("text\n\n- **cell** = x.\n  Defined in `a.rs`,\n  `{place}`.\n")),
                [""; 0],
                "{place}"
            );
        }
    }

    #[test]
    fn places_that_do_not_exist_are_named() {
        for place in ["b.rs", "b.rs::Cell", "a.rs::Cel", "a.rs::Two", "a.rs::x", "train.ranks", "trains.steps"] {
            let expected = format!("docs/glossary.md:2: `{place}` must be a path, ");
            let found = findings(&format!("text\n- **cell** = x. Defined in `{place}`.\n"));
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{place}: {found:?}");
        }
    }

    #[test]
    fn an_entry_without_a_place_is_named() {
        let found = findings("- **cell** = x.\n\n- **b** = y. Defined in a file.\n");
        let expected = [
            "docs/glossary.md:1: the entry must end with \"Defined in `PLACE`.\"",
            "docs/glossary.md:3: \"Defined in \" must name a place in backticks",
        ];
        assert_eq!(found, expected);
    }
}
