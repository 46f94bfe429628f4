//! Replaced words: phrases of earlier texts for which the field has a word of its own. `docs/glossary.md` explains the
//! words that stay.
//!
//! The check reads comments, strings, identifiers and prose alike. Texts that are not edited yet are listed with their
//! counts ([`ratchet`]); the counts can only fall.

pub mod pattern;
pub mod ratchet;
pub mod table;

use std::collections::BTreeMap;

use crate::repository::{Repository, SourceFile};
use crate::tidy::Finding;

use pattern::{Pattern, Token};
use ratchet::Ratchet;
use table::REPLACED;

/// Kinds of files that are checked.
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "py", "sh"];
/// Files and folders that must name replaced phrases, and the frozen corpus.
const EXEMPT: &[&str] = &["crates/data/corpus/", "docs/glossary.md", "xtask/src/words.rs", "xtask/src/words/"];

/// Lines, counted from 1, of each replaced phrase in each file that has some: `path -> phrase -> lines`.
pub type Occurrences = BTreeMap<String, BTreeMap<String, Vec<usize>>>;

/// All replaced phrases of the repository.
pub fn occurrences(repository: &Repository) -> Occurrences {
    let patterns: Vec<(String, Pattern)> =
        REPLACED.iter().map(|replaced| (replaced.name(), Pattern::of(replaced))).collect();
    let mut all = Occurrences::new();
    for file in repository.files.iter().filter(|file| is_checked(file)) {
        let tokens = pattern::tokens(&checked_text(file));
        for (name, pattern) in &patterns {
            let lines: Vec<usize> = pattern.matches(&tokens).map(|at: &Token| at.line).collect();
            if !lines.is_empty() {
                all.entry(file.path.clone()).or_default().insert(name.clone(), lines);
            }
        }
    }
    all
}

/// Phrases beyond those that the ratchet file lists, and counts of the ratchet file that are higher than those of the
/// texts.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let listed = match repository.file(ratchet::PATH).and_then(|file| file.text.as_deref()).map(Ratchet::parse) {
        None => Ratchet::default(),
        Some(Ok(listed)) => listed,
        Some(Err((line, message))) => return vec![Finding { path: ratchet::PATH.into(), line, message }],
    };
    let found = occurrences(repository);
    let mut findings = Vec::new();
    for (path, phrases) in &found {
        for (name, lines) in phrases {
            let allowed = listed.count(path, name);
            if lines.len() > allowed {
                findings.push(Finding { path: path.clone(), line: lines[0], message: too_many(name, lines, allowed) });
            }
        }
    }
    let fewer = listed.entries().find(|(path, name, count)| {
        let lines = found.get(*path).and_then(|phrases| phrases.get(*name));
        lines.map_or(0, Vec::len) < *count
    });
    if let Some((path, name, count)) = fewer {
        let message = format!(
            "`{name}` is listed {count} times, more than the text has; after an edit or a rename run {}",
            ratchet::COMMAND
        );
        findings.push(Finding { path: path.to_string(), line: 0, message });
    }
    findings
}

fn too_many(name: &str, lines: &[usize], allowed: usize) -> String {
    let replaced = REPLACED.iter().find(|replaced| replaced.name() == name);
    let (instead, why) = replaced.map_or(("", ""), |replaced| (replaced.instead, replaced.why));
    let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
    let limit = if allowed == 0 { String::new() } else { format!(", {allowed} allowed as not yet edited") };
    format!("`{name}` in lines {}{limit}; write {instead}: {why}", lines.join(", "))
}

fn is_checked(file: &SourceFile) -> bool {
    let extension = file.path.rsplit('.').next().unwrap_or_default();
    EXTENSIONS.contains(&extension) && !EXEMPT.iter().any(|place| file.path.starts_with(place))
}

/// The text; of Markdown without what is ~~struck out~~, which shows a sentence as it should not be.
fn checked_text(file: &SourceFile) -> String {
    let text = file.text.as_deref().unwrap_or_default();
    if !file.path.ends_with(".md") {
        return text.to_string();
    }
    let blank = |part: &str| part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
    let parts = text.split("~~").enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part.to_string() } else { blank(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::table::Replaced;
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| SourceFile::of(path, text)).collect();
        check(&Repository { files }).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_planted_phrase_is_found_in_every_kind_of_file() {
        for path in ["crates/mesh/src/a.rs", "docs/a.md", "examples/a.toml", "tools/a.py", "tools/a.sh"] {
            let found = findings(&[(path, "\nthe ranks are told\n")]);
            assert_eq!(found.len(), 1, "{path}");
            assert!(found[0].starts_with(&format!("{path}:2: `told` in lines 2; write ")), "{found:?}");
        }
    }

    #[test]
    fn exempt_files_and_struck_out_sentences_are_not_checked() {
        for path in ["docs/glossary.md", "xtask/src/words/table.rs", "crates/data/corpus/a.md", "a.txt"] {
            assert_eq!(findings(&[(path, "told\n")]), [""; 0], "{path}");
        }
        assert_eq!(findings(&[("docs/a.md", "~~we are told~~ we report\n")]), [""; 0]);
        assert_eq!(findings(&[("docs/a.md", "~~we are told~~ we are told\n")]).len(), 1);
    }

    #[test]
    fn a_listed_file_with_more_is_found_and_one_with_fewer_asks_for_a_lower_count() {
        let list = "phrase told\na.md: 2 told\n";
        let two = "told, told\n";
        assert_eq!(findings(&[("a.md", two), (ratchet::PATH, list)]), [""; 0]);
        let more = findings(&[("a.md", "told, told\ntold\n"), (ratchet::PATH, list)]);
        assert_eq!(more.len(), 1);
        assert!(more[0].starts_with("a.md:1: `told` in lines 1, 1, 2, 2 allowed as not yet edited; write"), "{more:?}");
        let fewer = findings(&[("a.md", "told\n"), (ratchet::PATH, list)]);
        assert_eq!(fewer.len(), 1);
        assert!(
            fewer[0].starts_with(
                "a.md: `told` is listed 2 times, more than the text has; after an edit or a rename run `cargo"
            ),
            "{fewer:?}"
        );
        let elsewhere = findings(&[("a.md", two), ("b.md", "told\n"), (ratchet::PATH, list)]);
        assert_eq!(elsewhere.len(), 1);
        assert!(elsewhere[0].starts_with("b.md:1: `told` in lines 1; write"), "{elsewhere:?}");
    }

    #[test]
    fn a_damaged_list_is_named() {
        let found = findings(&[(ratchet::PATH, "phrase told\na.md: told\n")]);
        assert_eq!(found, ["xtask/not_yet_edited.txt:2: expected `COUNT NAME` after the path"]);
    }

    #[test]
    fn names_of_phrases_differ() {
        let names: Vec<String> = REPLACED.iter().map(Replaced::name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is there twice");
        }
    }
}
