//! Why a device could not do what it was asked.

use thiserror::Error;

use crate::{DeviceKind, Stream};

/// See the variants.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A tensor is outside the arena.
    #[error("{tensor} needs bytes up to {end_bytes}, but the arena has {arena_bytes}")]
    OutsideArena {
        /// The tensor, printed.
        tensor: String,
        /// First byte after it.
        end_bytes: usize,
        /// Size of the arena.
        arena_bytes: usize,
    },
    /// A shape or element type that the operation does not take.
    #[error("{op}: {what}")]
    Shape {
        /// The operation's name.
        op: &'static str,
        /// The mismatch, with the numbers.
        what: String,
    },
    /// The arena could not be allocated.
    #[error("cannot allocate an arena of {bytes} bytes for one rank; {remedy}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// A change that needs less.
        remedy: &'static str,
    },
    /// Memory of the host for what a rank on an accelerator offloads could not be allocated.
    #[error(
        "cannot allocate {bytes} bytes of pinned memory of the host for what one rank offloads; `ulimit -l unlimited` \
         lifts a limit of locked memory, fewer ranks on this host need less, and so do a higher parallelism.zero for \
         optimizer state and parallelism.recompute = \"full\" for activations; train.offload = \"none\" needs none"
    )]
    OutOfHostMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Memory that the threads of a rank compute in could not be allocated.
    #[error(
        "cannot allocate {bytes} bytes for {holder} of one rank; fewer ranks on this host or fewer run.threads_per_rank \
         need less, and `ulimit -v unlimited` lifts a limit of address space"
    )]
    Buffers {
        /// Bytes asked for.
        bytes: usize,
        /// The part that needs them.
        holder: &'static str,
    },
    /// The system starts no more threads.
    #[error("a rank's pool of {threads} threads cannot be started: {cause}; fewer threads per rank need less")]
    Threads {
        /// Threads of the pool.
        threads: usize,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// A choice of the run's numerics that the device does not have.
    #[error("{choice} must be supported by the device; {device} refuses it; {remedy}")]
    Refused {
        /// The choice, as the run file names it.
        choice: String,
        /// The device.
        device: DeviceKind,
        /// Values that the device accepts.
        remedy: String,
    },
    /// A collective or a transfer failed: a peer died, was late, or ended the run.
    #[error(transparent)]
    Communication(Box<dyn std::error::Error + Send + Sync>),
    /// An accelerator, or the compiler of its kernels, did not do what it was asked.
    #[error("{what}: {cause}")]
    Accelerator {
        /// The request: an operation with its tensors, a copy, a source of kernels.
        what: String,
        /// The driver's reason.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Work on a stream with a thread of its own failed.
    #[error("on the {stream:?} stream: {cause}")]
    Stream {
        /// The stream.
        stream: Stream,
        /// The first failure.
        cause: String,
    },
    /// A thread of the device panicked.
    #[error("a thread panicked: {message}")]
    Panicked {
        /// Its message.
        message: String,
    },
    /// Bits are wrong that nothing wrote, or that the same computation gives differently.
    #[error("{what}")]
    Corrupted {
        /// The tensor or the operation, and what shows it.
        what: String,
    },
    /// State is not handed to storage.
    #[error("storage does not take the state of {what}: {reason}")]
    Storage {
        /// The state to save.
        what: String,
        /// Why it is not.
        reason: String,
    },
}
