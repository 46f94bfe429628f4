//! Replaced words: phrases for which the field has a word of its own. `docs/glossary.md` explains the words that stay.
//!
//! The check reads documents, comments and strings; of names in code it reads those phrases that no name needs
//! ([`Scope`]).

pub mod pattern;
pub mod table;

use crate::finding::Finding;
use crate::repository::{Repository, SourceFile};
use crate::rust_code::text_only;

use pattern::{Pattern, Token};
use table::{REPLACED, Replaced, Scope};

/// Kinds of files whose comments and strings are separate from their code.
const SOURCES: &[&str] = &["rs", "cu", "cuh", "js"];
/// Kinds of files that are text as a whole.
const TEXTS: &[&str] = &["md", "toml", "py", "sh", "yaml", "sbatch"];
/// Scripts without an extension.
const SCRIPTS: &[&str] = &[".ci/run"];
/// Files and folders that must name replaced phrases, and the frozen corpus.
const EXEMPT: &[&str] = &["crates/training/data/corpus/", "docs/glossary.md", "xtask/src/words.rs", "xtask/src/words/"];

/// Every replaced phrase of the repository.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let patterns: Vec<(&Replaced, Pattern)> =
        REPLACED.iter().map(|replaced| (replaced, Pattern::of(replaced))).collect();
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| !EXEMPT.iter().any(|place| file.path.starts_with(place))) {
        let Some(texts) = Texts::of(file) else { continue };
        for (replaced, pattern) in &patterns {
            let lines: Vec<usize> = pattern.matches(texts.read_by(replaced.scope)).map(|at| at.line).collect();
            if !lines.is_empty() {
                findings.push(Finding { path: file.path.clone(), line: lines[0], message: message(replaced, &lines) });
            }
        }
    }
    findings
}

fn message(replaced: &Replaced, lines: &[usize]) -> String {
    let numbers: Vec<String> = lines.iter().map(usize::to_string).collect();
    let Replaced { instead, why, .. } = replaced;
    format!("`{}` in lines {}; write {instead}: {why}", replaced.name(), numbers.join(", "))
}

/// The words of a file.
struct Texts {
    with_names: Vec<Token>,
    prose: Vec<Token>,
}

impl Texts {
    /// `None` for files that are not checked.
    fn of(file: &SourceFile) -> Option<Texts> {
        let text = file.text.as_deref()?;
        let extension = file.path.rsplit('.').next().unwrap_or_default();
        let (with_names, prose) = if SOURCES.contains(&extension) {
            (text.to_string(), text_only(text))
        } else if extension == "md" {
            let text = without_struck_out(text);
            (text.clone(), without_paths_of_code(&text))
        } else if TEXTS.contains(&extension) || SCRIPTS.contains(&file.path.as_str()) {
            (text.to_string(), text.to_string())
        } else {
            return None;
        };
        Some(Texts { with_names: pattern::tokens(&with_names), prose: pattern::tokens(&prose) })
    }

    fn read_by(&self, scope: Scope) -> &[Token] {
        match scope {
            Scope::Everywhere => &self.with_names,
            Scope::Prose => &self.prose,
        }
    }
}

/// Markdown without ~~struck out~~ text, which shows a sentence as it should not be.
fn without_struck_out(text: &str) -> String {
    every_second(text, "~~", |_| true)
}

/// Markdown without code that has a path, such as `a::b`, which names an item of a source.
fn without_paths_of_code(text: &str) -> String {
    every_second(text, "`", |code| code.contains("::") && !code.contains('\n'))
}

/// `text` with every second of the parts between `mark` blank, if `is_blank`; lines stay where they are.
fn every_second(text: &str, mark: &str, is_blank: impl Fn(&str) -> bool) -> String {
    let blank = |part: &str| part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
    let part = |(index, part): (usize, &str)| if index % 2 == 1 && is_blank(part) { blank(part) } else { part.into() };
    text.split(mark).enumerate().map(part).collect::<Vec<String>>().join(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| SourceFile::of(path, text)).collect();
        check(&Repository { files }).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_planted_phrase_is_found_in_every_kind_of_file() {
        let text = "\n// the ranks are told, \"and told\"\n";
        for path in
            ["crates/step/mesh/src/a.rs", "docs/a.md", "examples/a.toml", "tools/a.py", "tools/a.sh", ".ci/run", "a.cu"]
        {
            let found = findings(&[(path, text)]);
            assert_eq!(found.len(), 1, "{path}");
            assert!(found[0].starts_with(&format!("{path}:2: `told` in lines 2, 2; write ")), "{found:?}");
        }
    }

    #[test]
    fn names_of_code_are_checked_for_phrases_that_no_name_needs() {
        let code = "fn a_fault_is_told() {}\nlet told = behind;\nfor one in pairs {}\nfn hands_on() {}\n";
        let found = findings(&[("a.rs", code)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a.rs:4: `hand on` in lines 4; write pass"), "{found:?}");
        assert_eq!(findings(&[("a.rs", "x; // told\nlet s = \"told\";\n")]).len(), 1);
        assert_eq!(findings(&[("a.md", "see `a/b.rs::is_told` and\n```\na::b\n```\n")]), [""; 0]);
        assert_eq!(findings(&[("a.md", "see `a/b.rs::is_told` as told by `pleach told`\n")]).len(), 1);
    }

    #[test]
    fn exempt_files_and_struck_out_sentences_are_not_checked() {
        for path in ["docs/glossary.md", "xtask/src/words/table.rs", "crates/training/data/corpus/a.md", "a.txt"] {
            assert_eq!(findings(&[(path, "told\n")]), [""; 0], "{path}");
        }
        assert_eq!(findings(&[("docs/a.md", "~~we are told~~ we report\n")]), [""; 0]);
        assert_eq!(findings(&[("docs/a.md", "~~we are told~~ we are told\n")]).len(), 1);
    }

    #[test]
    fn names_of_phrases_differ() {
        let names: Vec<String> = REPLACED.iter().map(Replaced::name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is there twice");
        }
    }
}
