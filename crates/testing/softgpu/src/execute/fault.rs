//! Faults of a kernel.

/// A kernel that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// The description.
    pub text: String,
    /// The lane, where it was one.
    pub lane: Option<usize>,
    /// The instruction's number among the sources, once it is known.
    pub source: Option<u32>,
}

/// Faults that end a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// An access without memory, or to memory that may not be written.
    Access,
    /// An address that is not a multiple of the size.
    Misaligned,
    /// An access outside of the ranges that the launch may use.
    Undeclared,
    /// A read of bytes that nothing has written.
    Unwritten,
    /// Two accesses of the same bytes without an order.
    Race,
    /// Lanes or warps that wait for others that do not come.
    Barrier,
    /// More instructions than a launch may run.
    Endless,
    Trap,
    /// Anything else that the code may not do.
    Invalid,
}

impl Fault {
    /// A fault of the instruction as a whole.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Fault {
        Fault { kind, text: text.into(), lane: None, source: None }
    }

    /// A fault of one lane.
    pub fn of_lane(kind: FaultKind, lane: usize, text: impl Into<String>) -> Fault {
        Fault { kind, text: text.into(), lane: Some(lane), source: None }
    }
}
