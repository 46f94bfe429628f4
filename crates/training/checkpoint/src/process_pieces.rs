//! Records of the pieces that a process has written, on their way to the process that commits.

use serde::{Deserialize, Serialize};

use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::SavedIn;
use crate::hash::Hash;
use crate::manifest::{FileRecord, PieceRecord, RunState};
use crate::piece_file::PieceEntry;

/// Everything that a manifest needs of the ranks of one process: names, boxes, places and hashes of their pieces,
/// without the pieces.
#[derive(Debug)]
pub struct ProcessPieces {
    /// The state of the run; the same in every process.
    pub(crate) state: RunState,
    /// Where the files are.
    pub(crate) data: SavedIn,
    /// The first rank of the process.
    pub(crate) first_rank: usize,
    /// One file for each rank that answers for something, or why one is missing.
    pub(crate) files: Result<Vec<WrittenFile>, CheckpointError>,
}

/// A file that is on the disk, and the pieces in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenFile {
    pub(crate) record: FileRecord,
    pub(crate) pieces: Vec<WrittenPiece>,
}

/// A piece in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenPiece {
    tensor: String,
    shape: Vec<usize>,
    start: Vec<usize>,
    extent: Vec<usize>,
    offset: u64,
    xxh3: Vec<Hash>,
}

/// The form of [`ProcessPieces`] in bytes: JSON. An error is its text.
#[derive(Serialize, Deserialize)]
struct Message {
    state: RunState,
    data: SavedIn,
    first_rank: usize,
    files: Result<Vec<WrittenFile>, String>,
}

impl WrittenPiece {
    /// The piece of `entry` at byte `offset`, whose blocks have these hashes.
    pub(crate) fn new(entry: &PieceEntry, offset: u64, xxh3: Vec<Hash>) -> WrittenPiece {
        let PieceEntry { tensor, shape, region } = entry.clone();
        WrittenPiece { tensor, shape, start: region.start, extent: region.extent, offset, xxh3 }
    }

    /// Name and shape of the tensor, and the record of the piece, whose file has the number `file`.
    pub(crate) fn into_record(self, file: usize) -> (String, Vec<usize>, PieceRecord) {
        let WrittenPiece { tensor, shape, start, extent, offset, xxh3 } = self;
        (tensor, shape, PieceRecord { start, extent, file, offset, xxh3 })
    }
}

impl ProcessPieces {
    /// Steps of the checkpoint that they belong to.
    pub fn steps(&self) -> u32 {
        self.state.steps
    }

    /// Where the files are.
    pub fn data(&self) -> SavedIn {
        self.data
    }

    /// The message to the process that commits.
    ///
    /// # Errors
    /// None that is known: everything in it has a form in JSON.
    pub fn to_bytes(self) -> serde_json::Result<Vec<u8>> {
        let ProcessPieces { state, data, first_rank, files } = self;
        serde_json::to_vec(&Message { state, data, first_rank, files: files.map_err(|error| error.to_string()) })
    }

    /// The inverse of [`ProcessPieces::to_bytes`]; a failure becomes [`CheckpointError::Process`] with its text.
    ///
    /// # Errors
    /// [`CheckpointError::Process`] for bytes that are not such a message.
    pub fn from_bytes(bytes: &[u8]) -> Result<ProcessPieces, CheckpointError> {
        let malformed = |error: serde_json::Error| {
            CheckpointError::Process(format!("a process sent something else than its pieces: {error}"))
        };
        let Message { state, data, first_rank, files } = serde_json::from_slice(bytes).map_err(malformed)?;
        Ok(ProcessPieces { state, data, first_rank, files: files.map_err(CheckpointError::Process) })
    }
}
