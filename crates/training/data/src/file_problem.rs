//! An error of a file of tokens.

/// A file that is not what it says. Offsets are bytes from its beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileProblem {
    /// Another kind of file.
    #[error("it begins with {found:02x?} at byte 0, not with {expected:02x?}: it is not {kind}")]
    Magic {
        /// The expected value.
        kind: &'static str,
        /// How that begins.
        expected: Vec<u8>,
        /// How this begins.
        found: Vec<u8>,
    },
    /// A later version of the format, or a damaged header.
    #[error("version {found} at byte {offset} is not known; use {expected}")]
    Version {
        /// The value in the file.
        found: u64,
        /// The known value.
        expected: u64,
        /// Where it says so.
        offset: usize,
    },
    /// Tokens of a type that is not known, or that tokens cannot have.
    #[error("the type {found} of its tokens at byte {offset} is not known; use {expected}")]
    Type {
        /// The value in the file.
        found: u64,
        /// The known value.
        expected: &'static str,
        /// Where it says so.
        offset: usize,
    },
    /// The file is shorter than it says.
    #[error("it ends at byte {found}{}, but {announced_by} {expected} bytes; it was cut off: write it again", within(.document))]
    Truncated {
        /// Its length.
        found: u64,
        /// The length it should have.
        expected: u64,
        /// Where the length is written, with a verb.
        announced_by: &'static str,
        /// The document in which it ends, where that is known.
        document: Option<usize>,
    },
    /// The file is longer than it says.
    #[error(
        "it has {found} bytes, but {announced_by} {expected}; the bytes after them belong to no document: write it again"
    )]
    TooLong {
        /// Its length.
        found: u64,
        /// The length it should have.
        expected: u64,
        /// Where the length is written, with a verb.
        announced_by: &'static str,
    },
    /// The content is not that which was written.
    #[error(
        "the hash of its content is {found:016x}, but it says {expected:016x} at byte {offset}; it was damaged: write it again"
    )]
    Hash {
        /// The hash of the content.
        found: u64,
        /// The value in the header.
        expected: u64,
        /// Where it says so.
        offset: usize,
    },
    /// The index of its documents contradicts itself.
    #[error("document {document}: {what} at byte {offset}; write it again")]
    Index {
        /// The document, counted from 0.
        document: usize,
        /// The error.
        what: String,
        /// Where.
        offset: usize,
    },
    /// Its own tokenizer cannot be read, or does not know all of its tokens.
    #[error("its tokenizer at byte {offset}: {what}; write it again")]
    Tokenizer {
        /// The error.
        what: String,
        /// Where.
        offset: usize,
    },
}

fn within(document: &Option<usize>) -> String {
    document.map(|document| format!(" within document {document}")).unwrap_or_default()
}
