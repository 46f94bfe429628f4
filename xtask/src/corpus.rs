//! Makes the corpus that is embedded in the program.

use std::collections::HashSet;

use data::DOCUMENT_MARK;

use crate::repository::{Repository, SourceFile};

/// The path of the corpus.
pub const PATH: &str = "crates/training/data/corpus/pleach.txt";

/// Shorter paragraphs are part of the language: only longer ones count as repeated.
const SHORTEST_REPETITION_BYTES: usize = 80;

/// Size to which sources are added to the documentation: enough to learn from within a minute, little enough to be part
/// of a program.
const ENOUGH_BYTES: usize = 550_000;

/// The corpus of a repository at the state called `state`: its documentation and as many of its Rust sources as make
/// [`ENOUGH_BYTES`], in the order of their paths, without paragraphs that were there before.
pub fn make(repository: &Repository, state: &str) -> String {
    let mut seen = HashSet::new();
    let mut documents = String::new();
    let mut num_documents = 0;
    for file in chosen(repository) {
        let text = without_repetitions(file.text.as_deref().unwrap_or_default(), &mut seen);
        if !text.trim().is_empty() {
            num_documents += 1;
            documents.push_str(&format!("\n{DOCUMENT_MARK}{}\n{text}", file.path));
        }
    }
    let hash = fingerprint(&documents);
    format!(
        "The documentation and sources of pleach, frozen. Made by `cargo run -p xtask -- corpus STATE`.\n\
         State of {state}, {hash:016x}: {num_documents} documents, {} bytes.\n{documents}",
        documents.len()
    )
}

/// Which files: all prose, and sources drawn by the hash of their path, so that every part of the project has its
/// share.
fn chosen(repository: &Repository) -> Vec<&SourceFile> {
    let len = |file: &SourceFile| file.text.as_ref().map_or(0, String::len);
    let (mut chosen, mut sources): (Vec<&SourceFile>, Vec<&SourceFile>) =
        repository.files.iter().filter(|file| is_prose(file) || is_source(file)).partition(|file| is_prose(file));
    sources.sort_by_key(|file| fingerprint(&file.path));
    let mut bytes: usize = chosen.iter().map(|file| len(file)).sum();
    for file in sources {
        if bytes + len(file) <= ENOUGH_BYTES {
            bytes += len(file);
            chosen.push(file);
        }
    }
    chosen.sort_by(|first, second| first.path.cmp(&second.path));
    chosen
}

fn is_prose(file: &SourceFile) -> bool {
    // One language is enough for a model of this size.
    file.path.ends_with(".md") && !file.path.contains(".zh-CN.")
}

/// Sources of the product. Tests repeat themselves more than people do.
fn is_source(file: &SourceFile) -> bool {
    file.path.ends_with(".rs") && !["/tests/", "/benches/"].iter().any(|folder| file.path.contains(folder))
}

fn without_repetitions(text: &str, seen: &mut HashSet<String>) -> String {
    let mut kept = Vec::new();
    for paragraph in text.split("\n\n") {
        if paragraph.len() < SHORTEST_REPETITION_BYTES || seen.insert(paragraph.to_string()) {
            kept.push(paragraph);
        }
    }
    kept.join("\n\n")
}

/// FNV-1a of the text, which names its state.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_marked_and_repetitions_are_left_out() {
        let long = "a paragraph that is long enough to count as a repetition when it comes a second time";
        let first = SourceFile::of("a.md", &format!("one\n\n{long}\n"));
        let second = SourceFile::of("b.rs", &format!("one\n\n{long}\n\ntwo\n"));
        let files = vec![first, second, SourceFile::of("LICENSE-MIT", "x"), SourceFile::of("README.zh-CN.md", "x")];
        let text = make(&Repository { files }, "today");
        let (_, documents) = text.split_once("bytes.\n").expect("a header");
        assert_eq!(documents, format!("\n\u{1e} a.md\none\n\n{long}\n\n\u{1e} b.rs\none\n\n{long}\n\ntwo\n"));
        let again = make(
            &Repository {
                files: vec![
                    SourceFile::of("a.md", &format!("{long}\n\nend\n")),
                    SourceFile::of("b.md", &format!("{long}\n\nend\n")),
                ],
            },
            "today",
        );
        assert!(again.ends_with("\n\u{1e} b.md\nend\n"), "{again}");
    }

    #[test]
    fn the_committed_corpus_is_what_its_header_says() {
        let repository = Repository::open().expect("readable");
        let text = repository.file(PATH).and_then(|file| file.text.as_deref()).expect("the corpus");
        let (header, documents) = text.split_once("bytes.\n").expect("a header");
        let state = format!(", {:016x}: ", fingerprint(documents));
        assert!(header.contains(&state), "{header} should contain {state}");
        assert!(header.ends_with(&format!("{} ", documents.len())), "{header}");
        assert!((400_000..=600_000).contains(&documents.len()), "{header}");
        assert!(header.contains("State of 2026-11-20, "), "{header}");
        for licence in ["Permission is hereby granted", "Licensed under the Apache License"] {
            // This line itself may be among the sources, as a string.
            assert!(!documents.lines().any(|line| line.starts_with(licence)), "the corpus holds a licence");
        }
        let mut seen = HashSet::new();
        for paragraph in documents.split("\n\n").filter(|paragraph| paragraph.len() >= SHORTEST_REPETITION_BYTES) {
            assert!(seen.insert(paragraph), "twice: {paragraph}");
        }
    }
}
