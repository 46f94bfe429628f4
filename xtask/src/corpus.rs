//! Makes the corpus that is embedded in the program.

use std::collections::HashSet;

use data::DOCUMENT_MARK;

use crate::repository::{Repository, SourceFile};

/// Where the corpus lies.
pub const PATH: &str = "crates/data/corpus/pleach.txt";

/// Shorter paragraphs are part of the language: only longer ones count as repeated.
const SHORTEST_REPETITION_BYTES: usize = 80;

/// The corpus of a repository: its documentation and Rust sources in the order of their paths, without paragraphs that were there before.
pub fn make(repository: &Repository) -> String {
    let mut seen = HashSet::new();
    let mut documents = String::new();
    let mut num_documents = 0;
    for (name, text) in repository.files.iter().filter_map(|file| Some((file, file.text.as_deref()?))) {
        let text = if belongs(name) { without_repetitions(text, &mut seen) } else { String::new() };
        if !text.trim().is_empty() {
            num_documents += 1;
            documents.push_str(&format!("\n{DOCUMENT_MARK}{}\n{text}", name.path));
        }
    }
    let hash = fingerprint(&documents);
    format!(
        "The documentation and sources of pleach, frozen. Made by `cargo run -p xtask -- corpus`.\n\
         State {hash:016x}: {num_documents} documents, {} bytes.\n{documents}",
        documents.len()
    )
}

fn belongs(file: &SourceFile) -> bool {
    // One language is enough for a model of this size.
    let is_prose = file.path.ends_with(".md") && !file.path.contains(".zh-CN.");
    is_prose || file.path.ends_with(".rs")
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
        let text = make(&Repository { files });
        let (_, documents) = text.split_once("bytes.\n").expect("a header");
        assert_eq!(documents, format!("\n\u{1e} a.md\none\n\n{long}\n\n\u{1e} b.rs\none\n\n{long}\n\ntwo\n"));
        let again = make(&Repository {
            files: vec![
                SourceFile::of("a.md", &format!("{long}\n\nend\n")),
                SourceFile::of("b.md", &format!("{long}\n\nend\n")),
            ],
        });
        assert!(again.ends_with("\n\u{1e} b.md\nend\n"), "{again}");
    }

    #[test]
    fn the_committed_corpus_is_what_its_header_says() {
        let repository = Repository::open().expect("readable");
        let text = repository.file(PATH).and_then(|file| file.text.as_deref()).expect("the corpus");
        let (header, documents) = text.split_once("bytes.\n").expect("a header");
        let state = format!("State {:016x}: ", fingerprint(documents));
        assert!(header.contains(&state), "{header} should contain {state}");
        assert!(header.ends_with(&format!("{} ", documents.len())), "{header}");
    }
}
