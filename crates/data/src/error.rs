//! Why text cannot be trained on.

use std::path::PathBuf;

/// What is wrong with a corpus, with what would put it right.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// There is no text.
    #[error("{} holds no text; name a text file, or a folder with text files", .0.display())]
    Empty(PathBuf),
    /// A file or folder cannot be read.
    #[error("{} cannot be read: {reason}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// A file is not text.
    #[error("{} is not UTF-8 at byte {offset}; convert it, or leave it out", .path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// First byte that is not.
        offset: usize,
    },
    /// The text is shorter than a sequence and its next token.
    #[error("the {part} text has {tokens} tokens, but train.sequence_length = {sequence_length} needs {}; give more text or shorter sequences", .sequence_length + 1)]
    TooShort {
        /// Which part of the corpus.
        part: &'static str,
        /// What there is.
        tokens: usize,
        /// Tokens of a sequence.
        sequence_length: usize,
    },
    /// A token that the model does not know.
    #[error("token {token} at byte {offset} of {document} is outside model.vocabulary = {vocabulary}; at least {} would do", .token + 1)]
    OutsideVocabulary {
        /// The token.
        token: usize,
        /// Name of the document.
        document: String,
        /// Offset within the document.
        offset: usize,
        /// Tokens that the model knows.
        vocabulary: usize,
    },
}
