//! Why a driver did not do what it was asked.

use thiserror::Error;

/// A call that failed, with the driver's own name and text for the reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call}: {kind}: {text}")]
pub struct DriverError {
    /// The function of the driver.
    pub call: &'static str,
    /// The reason.
    pub kind: DriverErrorKind,
    /// The driver's own words, and the log of a compiler where there is one.
    pub text: String,
}

/// Reasons that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DriverErrorKind {
    /// There is no library, or it lacks a function.
    #[error("the driver is missing or too old")]
    Unavailable,
    /// The memory of the GPU or pinned memory is used up.
    #[error("out of memory")]
    OutOfMemory,
    /// An address, size or handle that does not exist.
    #[error("an invalid argument")]
    InvalidArgument,
    /// Code that this GPU or driver cannot run.
    #[error("code that this GPU cannot run")]
    InvalidImage,
    /// A kernel read or wrote where it may not, or was stopped by a trap.
    #[error("a fault in a kernel")]
    KernelFault,
    /// A kernel ran longer than the driver allows.
    #[error("a kernel that does not end")]
    Timeout,
    /// An uncorrectable error of memory.
    #[error("an error of the GPU's memory that cannot be corrected")]
    Ecc,
    /// The GPU no longer answers.
    #[error("the GPU is lost")]
    Lost,
    /// Work that has not ended, where the call asks for ended work.
    #[error("the work has not ended")]
    NotReady,
    /// Any other code of the driver.
    #[error("error {0}")]
    Other(u32),
}
