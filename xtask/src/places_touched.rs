//! Checks the counts of `docs/extending.md`: how many source files name an example of each extension.

use crate::finding::Finding;
use crate::repository::{Repository, SourceFile};
use crate::rust_code::product_code;

/// The page, and the heading of its table.
const PAGE: &str = "docs/extending.md";
const HEADING: &str = "## How many files an extension touches";
/// The most source files that an extension may touch, by the first cell of its row.
const LIMITS: &[(&str, usize)] =
    &[("a collective", 12), ("an axis", 30), ("an operation", 8), ("a schedule", 8), ("a Hugging Face family", 2)];

/// Rows whose count is not that of the code, or beyond its limit, and extensions without a row.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let text = repository.file(PAGE).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let rows: Vec<(usize, Vec<&str>)> = lines
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter(|(_, line)| line.starts_with("| "))
        .map(|(index, line)| (index + 1, line.trim_matches('|').split('|').map(str::trim).collect()))
        .collect();
    let finding = |line: usize, message: String| Finding { path: PAGE.into(), line, message };
    let mut findings = vec![];
    for (extension, most) in LIMITS {
        let Some((line, row)) = rows.iter().find(|(_, row)| row.first() == Some(extension)) else {
            findings.push(finding(1, format!("\"{HEADING}\" has no row for {extension}")));
            continue;
        };
        let [_, _, names, own, written, limit] = row[..] else {
            findings.push(finding(*line, format!("the row has {} cells; it must have 6", row.len())));
            continue;
        };
        let files = touched(repository, &quoted(names), &quoted(own));
        if written != files.len().to_string() {
            let message =
                format!("{extension} is named in {} files and not in {written}: {}", files.len(), files.join(", "));
            findings.push(finding(*line, message));
        }
        if files.len() > *most || limit != most.to_string() {
            let message =
                format!("{extension} touches {} files; it may touch {most}, and the row says {limit}", files.len());
            findings.push(finding(*line, message));
        }
    }
    findings
}

/// The texts in backticks of a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Source files of the product that have one of `names` as a word, without those whose path has one of `own`.
fn touched(repository: &Repository, names: &[&str], own: &[&str]) -> Vec<String> {
    let is_counted = |file: &SourceFile| {
        let is_of_product = file.path.starts_with("crates/") && !file.path.starts_with("crates/testing/");
        is_of_product && file.is_product() && !own.iter().any(|own| file.path.contains(own))
    };
    let files = repository.with_extension("rs").filter(|(file, _)| is_counted(file));
    let named = files.filter(|(_, text)| {
        // Most files have no such word at all, and need not be read as code.
        let mut said = names.iter().filter(|name| has_word(text, name)).peekable();
        said.peek().is_some() && {
            let code = product_code(text);
            said.any(|name| has_word(&code, name))
        }
    });
    named.map(|(file, _)| file.path.clone()).collect()
}

fn has_word(code: &str, word: &str) -> bool {
    let is_of_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (code[..at].chars().next_back(), code[at + word.len()..].chars().next());
        !is_of_name(before) && !is_of_name(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings where `count` files are said to name an axis, of these files.
    fn found(count: &str, files: &[(&str, &str)]) -> Vec<String> {
        let rows = "| a collective | x | `none` | | 0 | 12 |\n| an operation | x | `none` | | 0 | 8 |\n\
             | a schedule | x | `none` | | 0 | 8 |\n| a Hugging Face family | x | `none` | | 0 | 2 |\n";
        let page = format!("{HEADING}\n\n{rows}| an axis | cp | `cp` | `own/` | {count} | 30 |\n\n## An axis\n");
        let files = files.iter().map(|(path, text)| SourceFile::of(path, text));
        let files = std::iter::once(SourceFile::of(PAGE, &page)).chain(files).collect();
        check(&Repository { files }).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn words_of_code_are_counted_and_those_of_comments_tests_and_own_files_are_not() {
        let files = [
            ("crates/a/b/src/one.rs", "fn f() { g(cp) }"),
            ("crates/a/b/src/key.rs", "const KEY: &str = \"parallelism.cp\";"),
            ("crates/a/b/src/comment.rs", "// cp\nfn f(cps: usize) {}"),
            ("crates/a/b/src/tested.rs", "#[cfg(test)]\nmod tests { fn f() { g(cp) } }"),
            ("crates/a/b/src/own/mod.rs", "fn f() { g(cp) }"),
            ("crates/a/b/src/tests/all.rs", "fn f() { g(cp) }"),
            ("crates/testing/b/src/one.rs", "fn f() { g(cp) }"),
        ];
        assert_eq!(found("2", &files), [""; 0]);
        let expected = "docs/extending.md:7: an axis is named in 2 files and not in 3: crates/a/b/src/one.rs, \
                        crates/a/b/src/key.rs";
        assert_eq!(found("3", &files), [expected]);
    }

    #[test]
    fn more_files_than_the_limit_and_a_missing_row_are_found() {
        let paths: Vec<String> = (0..31).map(|number| format!("crates/a/b/src/f{number}.rs")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "fn f() { g(cp) }")).collect();
        let beyond = "docs/extending.md:7: an axis touches 31 files; it may touch 30, and the row says 30";
        assert_eq!(found("31", &files), [beyond]);
        let missing = check(&Repository { files: vec![SourceFile::of(PAGE, HEADING)] });
        assert_eq!(missing.len(), LIMITS.len());
    }
}
