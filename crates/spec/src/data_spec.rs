//! What is read and where a run writes: the sections `[data]` and `[run]`.

use std::path::PathBuf;

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// Every byte is a token.
    Bytes,
}

impl Tokenizer {
    /// Number of different tokens.
    pub fn vocabulary(self) -> usize {
        match self {
            Tokenizer::Bytes => 256,
        }
    }
}

/// The text of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSpec {
    /// A file or a folder of text; `None` for the corpus that is part of the program.
    pub path: Option<PathBuf>,
    /// How it becomes tokens.
    pub tokenizer: Tokenizer,
}

/// Where a run writes, and on how many ranks it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// Folder for everything that the run leaves.
    pub folder: PathBuf,
    /// Ranks: the product of the degrees.
    pub ranks: usize,
    /// How long a rank waits for another before it gives up.
    pub timeout_seconds: f32,
    /// Bytes that each rank has for its arena; `None` where all ranks share this machine's memory.
    pub rank_memory_bytes: Option<u64>,
}
