//! Environment variables of pleach: one table lists them all.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::repository::Repository;

/// The page with the table.
const PAGE: &str = "docs/environment.md";
/// Names versions of before.
const HISTORY: &str = "CHANGELOG.md";
const PREFIX: &str = concat!("PLEACH", "_");

/// Variables that the table does not have, and rows of variables that no other file names.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let table = repository.file(PAGE).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let listed: BTreeSet<&str> = table.lines().flat_map(names).collect();
    let (mut findings, mut named) = (vec![], BTreeSet::new());
    for file in repository.files.iter().filter(|file| file.path != PAGE && file.path != HISTORY) {
        for (index, line) in file.text.as_deref().unwrap_or_default().lines().enumerate() {
            for name in names(line) {
                named.insert(name);
                if !listed.contains(name) {
                    let message = format!("{name} must have a row in {PAGE}");
                    findings.push(Finding { path: file.path.clone(), line: index + 1, message });
                }
            }
        }
    }
    let unused = listed.difference(&named).map(|name| format!("no file names {name}; remove it"));
    findings.extend(unused.map(|message| Finding { path: PAGE.into(), line: 0, message }));
    findings
}

/// The variables that a line names.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices(PREFIX).filter_map(|(start, _)| {
        let is_part = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
        let name = &line[start..];
        let name = &name[..name.find(|letter| !is_part(letter)).unwrap_or(name.len())];
        (name.len() > PREFIX.len()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::SourceFile;

    #[test]
    fn variables_without_a_row_and_rows_without_a_variable_are_named() {
        let name = |end: &str| format!("{PREFIX}{end}");
        let page = SourceFile::of(PAGE, &format!("| `{}`, `{}` | of both |\n", name("ONE"), name("OLD")));
        let script = SourceFile::of("a.sh", &format!("{}=1 b\n\n{PREFIX} \"{}\"\n", name("ONE"), name("NEW_2")));
        let found = check(&Repository { files: vec![page, script] });
        let found: Vec<String> = found.iter().map(Finding::to_string).collect();
        let expected = [
            format!("a.sh:3: {} must have a row in docs/environment.md", name("NEW_2")),
            format!("docs/environment.md: no file names {}; remove it", name("OLD")),
        ];
        assert_eq!(found, expected);
    }
}
