//! Why a file cannot be read, with the place in it.

use thiserror::Error;

/// A problem and its place in a file, such as "row group 3 at byte 1024".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct FormatError {
    pub place: String,
    /// The problem there.
    pub problem: Problem,
}

/// A problem, without its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The file ends too early.
    #[error("the file ends within {0}; it was cut off: write it again")]
    Truncated(&'static str),
    /// Bytes that contradict the format.
    #[error("{0}; the file was damaged: write it again")]
    Damaged(String),
    /// A number that is not a token, in a file that is as it was written.
    #[error("{0} is not a token; tokens are whole numbers from 0 to 4294967295: write the file again with others")]
    NotToken(i128),
    /// A part of the format that is not read here.
    #[error("{what} is not supported; {remedy}")]
    Unsupported {
        /// The part.
        what: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// A part that is larger than any that is read.
    #[error("{what} has {bytes} bytes; use at most {limit_bytes}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its bytes.
        bytes: u64,
        /// The most that it may have.
        limit_bytes: u64,
    },
    /// A file that becomes much more than it is.
    #[error(
        "it holds more than {limit_bytes} bytes, {} for each of its own; decompress or convert it first, or leave it out",
        crate::Growth::FACTOR
    )]
    Growth {
        /// The most that it may hold.
        limit_bytes: u64,
    },
    /// The column that is asked for is missing or of another type.
    #[error("{found}; {remedy}")]
    Column {
        /// The columns or the type that are there.
        found: String,
        /// Remedy.
        remedy: String,
    },
}

impl Problem {
    /// The problem at `place`.
    pub(crate) fn at(self, place: impl Into<String>) -> FormatError {
        FormatError { place: place.into(), problem: self }
    }

    /// Bytes that contradict the format.
    pub(crate) fn damaged(what: impl Into<String>) -> Problem {
        Problem::Damaged(what.into())
    }
}
