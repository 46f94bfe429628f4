//! The request of an observer to stop a run.

/// Whether an observer asks a run to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// Continue with the next step.
    None,
    /// End after the step in which all ranks have heard of it.
    Stop,
}
