//! Why a device could not do what it was asked.

use thiserror::Error;

/// See the variants.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A tensor lies outside the arena.
    #[error("{tensor} needs bytes up to {end_bytes}, but the arena has {arena_bytes}")]
    OutsideArena {
        /// The tensor, printed.
        tensor: String,
        /// First byte behind it.
        end_bytes: usize,
        /// Size of the arena.
        arena_bytes: usize,
    },
    /// A shape or element type that the operation does not take.
    #[error("{op}: {what}")]
    Shape {
        /// The operation's name.
        op: &'static str,
        /// What does not fit, with the numbers.
        what: String,
    },
    /// The arena could not be allocated.
    #[error("cannot allocate an arena of {bytes} bytes for one rank; {remedy}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// What would need less.
        remedy: &'static str,
    },
    /// The system starts no more threads.
    #[error("a rank's pool of {threads} threads cannot be started: {cause}; fewer threads per rank need less")]
    Threads {
        /// Threads of the pool.
        threads: usize,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A collective or a transfer failed: a peer died, was late, or ended the run.
    #[error(transparent)]
    Communication(Box<dyn std::error::Error + Send + Sync>),
    /// State is not handed to storage.
    #[error("storage does not take the state of {what}: {reason}")]
    Storage {
        /// What is to be saved.
        what: String,
        /// Why it is not.
        reason: String,
    },
}
