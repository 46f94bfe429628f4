//! The names of what ranks do together.

use std::fmt;

/// The operation that a message belongs to. Ranks compare it on receipt, and errors show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The sum, or maximum, of a buffer over a group, on every member.
    AllReduce,
    /// The sum over a group, each member keeping one slice.
    ReduceScatter,
    /// Every member's slice on every member.
    AllGather,
    /// A slice of every member for every member.
    AllToAll,
    /// Every member's buffer on the next member, counted round.
    Shift,
    /// One member's buffer on every member.
    Broadcast,
    /// Waiting until every member has arrived.
    Barrier,
    /// A message from one rank to one other.
    PointToPoint,
}

impl Operation {
    /// The name as in messages: `all-reduce`.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::ReduceScatter => "reduce-scatter",
            Operation::AllGather => "all-gather",
            Operation::AllToAll => "all-to-all",
            Operation::Shift => "ring shift",
            Operation::Broadcast => "broadcast",
            Operation::Barrier => "barrier",
            Operation::PointToPoint => "send and receive",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
