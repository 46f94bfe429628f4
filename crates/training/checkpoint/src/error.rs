//! Why a file of tensors cannot be written or read.

use std::path::PathBuf;

/// An error of a file of tensors.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be written; what was there before under its name is still there.
    #[error("{} cannot be written: {reason}; nothing under that name was changed", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// The disk has no room for the file; none of it was written.
    #[error("{} needs {len_bytes} bytes, for which there is no room: {reason}; nothing under that name was changed", .path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// Another process writes the same file.
    #[error("{} is being written by another process", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Not every element came, so the file would be incomplete.
    #[error("{}: {received} of {expected} elements of {tensor} were delivered; nothing under that name was changed", .path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The first tensor that is not whole.
        tensor: String,
        /// Elements that came.
        received: usize,
        /// Elements that it has.
        expected: usize,
    },
    /// The file cannot be read.
    #[error("{} cannot be read: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// The file is not what its name says.
    #[error("{} is not a safetensors file: {reason}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The mismatch.
        reason: String,
    },
    /// A tensor has elements of a type that cannot be used here.
    #[error("{}: tensor {tensor} has elements of type {dtype}; use F32, BF16 or F16", .path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: String,
    },
}
