//! The wish of whoever watches a run.

/// Whether a run continues after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Continue with the next step.
    Continue,
    /// End after the step in which all ranks have heard of it.
    Stop,
}
