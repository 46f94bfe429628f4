//! What a collective sends, as a formula.

use super::COPY_LIMIT_BYTES;
use crate::operation::Operation;
use mesh::even_split;
use std::iter::Sum;
use std::ops::Add;

/// Messages and bytes that leave one rank. A message to several ranks counts once for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of messages.
    pub messages: u64,
    /// Their length together.
    pub bytes: u64,
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(each: I) -> Traffic {
        each.fold(Traffic::default(), Traffic::add)
    }
}

/// What the member at `position` of a group of `members` sends in one call of `operation` over a
/// buffer of `len` elements of `width_bytes`.
///
/// The buffer is the whole argument of the collective, all slices together. A broadcast is counted
/// at its root, position 0 standing for it; a point-to-point message at its sender. A
/// [`Counting`](crate::Counting) transport counts the same.
pub fn traffic(operation: Operation, len: usize, width_bytes: usize, members: usize, position: usize) -> Traffic {
    let peers = members.saturating_sub(1) as u64;
    let whole = (len * width_bytes) as u64;
    let own = (even_split(len, members, position).len() * width_bytes) as u64;
    let scatter = Traffic { messages: peers, bytes: whole - own };
    let to_all = |bytes: u64| Traffic { messages: peers, bytes: peers * bytes };
    if peers == 0 && operation != Operation::PointToPoint {
        return Traffic::default();
    }
    match operation {
        Operation::AllReduce if len * width_bytes <= COPY_LIMIT_BYTES => to_all(whole),
        Operation::AllReduce => Traffic { messages: scatter.messages + peers, bytes: scatter.bytes + peers * own },
        Operation::ReduceScatter => scatter,
        Operation::AllGather => to_all(own),
        Operation::Broadcast if position == 0 => to_all(whole),
        Operation::Broadcast => Traffic::default(),
        Operation::Barrier => to_all(0),
        Operation::PointToPoint => Traffic { messages: 1, bytes: whole },
    }
}
