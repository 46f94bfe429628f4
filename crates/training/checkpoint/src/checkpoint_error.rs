//! Why a checkpoint cannot be written or read.

use std::io;
use std::path::PathBuf;

/// An error of a checkpoint, or of writing one.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Something of it cannot be written; checkpoints that were there before are as they were.
    #[error("{} cannot be written: {reason}; earlier checkpoints are as they were", .path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// The error of the system.
        reason: io::Error,
    },
    /// Another run writes there.
    #[error("another run writes {} ({holder}); wait for its end, or end that process", .folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// Who has the lock.
        holder: String,
    },
    /// There is one of this step already.
    #[error("{} is there already; a run writes each of its checkpoints once", .path.display())]
    Exists {
        /// Its folder.
        path: PathBuf,
    },
    /// The state of a rank could not be read while it was saved.
    #[error("the state of a rank could not be read: {0}")]
    State(String),
    /// Another process could not write its pieces, or sent something else.
    #[error("{0}")]
    Process(String),
    /// Not every element of a tensor came.
    #[error("{missing} of {len} elements of {tensor} were not delivered")]
    Incomplete {
        /// The tensor.
        tensor: String,
        /// Elements that did not come, or came twice.
        missing: usize,
        /// Elements that it has.
        len: usize,
    },
    /// Something of it cannot be read.
    #[error("{} cannot be read: {reason}", .path.display())]
    Read {
        /// File or folder.
        path: PathBuf,
        /// The error of the system.
        reason: io::Error,
    },
    /// The folder holds no checkpoint.
    #[error("there is no checkpoint in {}; a run writes some where run.save_every is above 0, and one when it ends", .folder.display())]
    None {
        /// The folder.
        folder: PathBuf,
    },
    /// The manifest is not as it was written, or was not written by this program.
    #[error("{} is not a manifest of a checkpoint: {reason}", .path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The mismatch.
        reason: String,
    },
    /// The manifest is of a later version of this program.
    #[error("{} has format {found}, and this program reads formats up to {known}; a newer one reads it", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The latest that is known here.
        known: u32,
    },
    /// A file is longer or shorter than it was.
    #[error("{} has {found} bytes where {expected} were written", .path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// Its length when it was written.
        expected: u64,
    },
    /// Bytes of a tensor are not those that were written.
    #[error(
        "{}: bytes {start_bytes} to {end_bytes}, of tensor {tensor}, are not those that were written (XXH3 {found} instead of {expected})",
        .path.display()
    )]
    Block {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The first byte of the block.
        start_bytes: u64,
        /// The byte after the block.
        end_bytes: u64,
        /// Hash of what is there.
        found: String,
        /// Hash of what was written.
        expected: String,
    },
    /// The header of a file is not the one that was written.
    #[error("{}: its header, the first {len_bytes} bytes, is not the one that was written (XXH3 {found} instead of {expected})", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Length of the header.
        len_bytes: u64,
        /// Hash of what is there.
        found: String,
        /// Hash of what was written.
        expected: String,
    },
    /// It has no such tensor.
    #[error("{} has no tensor {tensor}", .path.display())]
    NoTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A wanted element was not saved, or was saved twice.
    #[error("{}: tensor {tensor}: {reason}", .path.display())]
    Uncovered {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The element that is missing or saved twice.
        reason: String,
    },
}

impl CheckpointError {
    /// Whether a checkpoint is damaged, so that another one may be better: not where it is sound, but of another
    /// program or model, nor where writing failed.
    pub fn is_damage(&self) -> bool {
        match self {
            CheckpointError::Read { .. }
            | CheckpointError::Manifest { .. }
            | CheckpointError::Length { .. }
            | CheckpointError::Block { .. }
            | CheckpointError::Header { .. }
            | CheckpointError::Uncovered { .. } => true,
            CheckpointError::Write { .. }
            | CheckpointError::Locked { .. }
            | CheckpointError::Exists { .. }
            | CheckpointError::State(_)
            | CheckpointError::Process(_)
            | CheckpointError::Incomplete { .. }
            | CheckpointError::None { .. }
            | CheckpointError::Newer { .. }
            | CheckpointError::NoTensor { .. } => false,
        }
    }
}
