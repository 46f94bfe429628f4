//! A call that failed, and the plan of one that can be made.

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub struct AttentionError {
    /// The function.
    pub call: &'static str,
    /// The library's number for the reason.
    pub status: u32,
    /// The library's name and text for the reason.
    pub text: String,
}

/// The plan of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanFacts {
    /// The number of the library's engine.
    pub engine: i64,
    /// Bytes of memory that it needs besides the tensors.
    pub workspace_bytes: usize,
}
