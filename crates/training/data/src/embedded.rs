//! Text that is part of the program: this project's own documentation and sources at one state, and a few tasks.

use crate::document::Document;

/// Begins the line above each document of the corpus file; the rest of the line is its name.
pub const DOCUMENT_MARK: &str = "\u{1e} ";

/// Short tasks with their answers, as JSON lines.
pub const TASKS: &str = include_str!("../corpus/tasks.jsonl");

const TEXT: &str = include_str!("../corpus/pleach.txt");

/// The documents, in the order of their names. The lines above the first document, which say which state it is, are not
/// among them.
pub fn embedded() -> Vec<Document> {
    let separator = format!("\n{DOCUMENT_MARK}");
    let documents = TEXT.split(separator.as_str()).skip(1);
    documents
        .filter_map(|document| document.split_once('\n'))
        .map(|(name, text)| Document { name: name.into(), text: text.into() })
        .collect()
}
