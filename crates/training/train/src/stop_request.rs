//! The wish of whoever watches a run.

/// Whether a run continues after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// Continue with the next step.
    None,
    /// End after the step in which all ranks have heard of it.
    Stop,
}
