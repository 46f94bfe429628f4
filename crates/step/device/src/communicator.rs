//! Joining tensors of the ranks of one group. A call is a value, so a group around a group handles one value, whatever
//! is called.

use std::fmt;
use std::sync::Arc;

use crate::{DeviceError, Stream, SumTree, Tensor};

/// The operation by which values of ranks are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum in the order of the tree: of real numbers in F32, a bf16 or fp16 result rounded once; or of I64
    /// (wrapping). Sums of bf16 and fp16 values are in rank order only.
    Sum(SumTree),
    /// The largest; F32.
    Max,
}

/// Declares [`Operation`]: each operation with its name in messages.
macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident = $name:literal),+ $(,)?) => {
        /// The operation that a message belongs to. Ranks compare it on receipt, and errors show it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $($(#[$doc])* $operation),+
        }

        impl Operation {
            /// All of them, by their number on the wire.
            pub const ALL: [Operation; [$($name),+].len()] = [$(Operation::$operation),+];

            /// The name as in messages: `all-reduce`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Operation::$operation => $name),+
                }
            }
        }
    };
}

operations! {
    /// The sum, or maximum, of a buffer over a group, on every member.
    AllReduce = "all-reduce",
    /// The sum over a group, each member keeping one slice.
    ReduceScatter = "reduce-scatter",
    /// Every member's slice on every member.
    AllGather = "all-gather",
    /// A slice of every member for every member.
    AllToAll = "all-to-all",
    /// Every member's buffer on the next member, counted round.
    Shift = "ring shift",
    /// Waiting until every member has arrived.
    Barrier = "barrier",
    /// A message from one rank to one other.
    PointToPoint = "send and receive",
}

impl Operation {
    /// Whether each member has other bytes for each of the others.
    pub const fn is_exchange(self) -> bool {
        matches!(self, Operation::AllToAll)
    }

    /// Its number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The operation with this number on the wire.
    pub fn of_number(number: u64) -> Option<Operation> {
        Operation::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One call of a [`Communicator`]. Tensors are dense.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// Joins the tensor over the group in place; every member ends with the same bits.
    AllReduce(Tensor, Reduction),
    /// The tensor is `size` equal slices; slice `position` ends as the sum over the group in the order of the tree, the
    /// others are unspecified.
    ReduceScatter(Tensor, SumTree),
    /// The tensor is `size` equal slices; every member ends with all of them, slice `p` from member `p`.
    AllGather(Tensor),
    /// `from` and `to` are `size` equal slices each, in places that do not overlap; slice `p` of `to` ends as slice
    /// `position` of the `from` of member `p`.
    AllToAll { from: Tensor, to: Tensor },
    /// The same of slices of equally many rows, of which the first are in use: the others do not travel, and what takes
    /// their places is unspecified. A group may exchange whole slices.
    ExchangeRows { from: Tensor, to: Tensor, rows: ExchangedRows },
    /// `to` ends as the `from` of the previous member, counted round; the two places do not overlap.
    Shift { from: Tensor, to: Tensor },
    /// Posts `x` to member `to` without blocking. `x` must not be written until `to` has received it.
    Send { to: usize, tag: u64, x: Tensor },
    /// Fills `x` with what member `from` sent under `tag`.
    Receive { from: usize, tag: u64, x: Tensor },
}

/// The numbers of rows of [`Call::ExchangeRows`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangedRows {
    /// `[size, _]`, I32: the last number of row `p` is that of the rows in use of slice `p` of what is given.
    pub given: Tensor,
    /// The same of what is gotten. Member `p` gives as many as this rank gets of it.
    pub gotten: Tensor,
    /// The number of rows that are given where all slices are in use alike: the one that costs count.
    pub expected: usize,
}

impl Call {
    /// The tensor that this rank sends, as costs count it: of rows as many as are expected.
    pub fn sent(self) -> Option<Tensor> {
        match self {
            Call::ExchangeRows { from, rows, .. } => Some(from.rows_of(0..rows.expected.min(from.rows))),
            Call::AllReduce(..)
            | Call::ReduceScatter(..)
            | Call::AllGather(_)
            | Call::AllToAll { .. }
            | Call::Shift { .. }
            | Call::Send { .. }
            | Call::Receive { .. } => {
                let [read, _] = self.operands();
                read
            }
        }
    }

    /// The operation of all members.
    pub const fn operation(self) -> Operation {
        match self {
            Call::AllReduce(..) => Operation::AllReduce,
            Call::ReduceScatter(..) => Operation::ReduceScatter,
            Call::AllGather(_) => Operation::AllGather,
            Call::AllToAll { .. } | Call::ExchangeRows { .. } => Operation::AllToAll,
            Call::Shift { .. } => Operation::Shift,
            Call::Send { .. } | Call::Receive { .. } => Operation::PointToPoint,
        }
    }

    /// The method of [`Communicator`] that makes it, for messages of one rank: `all_reduce`.
    pub const fn method(self) -> &'static str {
        match self {
            Call::AllReduce(..) => "all_reduce",
            Call::ReduceScatter(..) => "reduce_scatter",
            Call::AllGather(_) => "all_gather",
            Call::AllToAll { .. } => "all_to_all",
            Call::ExchangeRows { .. } => "exchange_rows",
            Call::Shift { .. } => "shift",
            Call::Send { .. } => "send",
            Call::Receive { .. } => "receive",
        }
    }

    /// The order in which it adds: rank order where it adds nothing.
    pub const fn tree(self) -> SumTree {
        match self {
            Call::AllReduce(_, Reduction::Sum(tree)) | Call::ReduceScatter(_, tree) => tree,
            Call::AllReduce(_, Reduction::Max)
            | Call::AllGather(_)
            | Call::AllToAll { .. }
            | Call::ExchangeRows { .. }
            | Call::Shift { .. }
            | Call::Send { .. }
            | Call::Receive { .. } => SumTree::RANK_ORDER,
        }
    }

    /// The tensors that the group reads from the rank's memory, and those that it writes.
    pub const fn operands(self) -> [Option<Tensor>; 2] {
        match self {
            Call::AllReduce(x, _) | Call::ReduceScatter(x, _) | Call::AllGather(x) => [Some(x), Some(x)],
            Call::AllToAll { from, to } | Call::ExchangeRows { from, to, .. } | Call::Shift { from, to } => {
                [Some(from), Some(to)]
            }
            Call::Send { x, .. } => [Some(x), None],
            Call::Receive { x, .. } => [None, Some(x)],
        }
    }

    /// Whether it writes the tensor that it reads, so that there is nothing to do in a group of one.
    pub fn is_in_place(self) -> bool {
        let [read, written] = self.operands();
        read == written
    }

    /// The parts of its operands that the member at `position` of `size` gives to the others, and those that it gets,
    /// without empty ones. The rest of what it writes is unspecified.
    pub fn parts(self, size: usize, position: usize) -> [Vec<Tensor>; 2] {
        let own = |x: Tensor| {
            let len = x.len() / size;
            len * position..len * (position + 1)
        };
        let [read, written] = self.operands().map(Vec::from_iter);
        let [given, gotten] = match self {
            Call::ReduceScatter(x, _) => [read, vec![x.elements(own(x))]],
            Call::AllGather(x) => {
                let own = own(x);
                [vec![x.elements(own.clone())], vec![x.elements(0..own.start), x.elements(own.end..x.len())]]
            }
            Call::AllReduce(..)
            | Call::AllToAll { .. }
            | Call::ExchangeRows { .. }
            | Call::Shift { .. }
            | Call::Send { .. }
            | Call::Receive { .. } => [read, written],
        };
        [given, gotten].map(|parts| parts.into_iter().filter(|part| !part.is_empty()).collect())
    }
}

/// The ranks of one group, seen from one of them. Every member issues the same calls in the same order.
///
/// A group of one is not a special case: its calls do nothing, and an all-to-all or a shift copies. Tensors are dense.
/// `comm::HostCommunicator` implements it for ranks on CPUs, over memory of a process, connections between processes
/// and libraries of MPI; crate `gpu_rank` implements it for ranks on GPUs, within a GPU, through the host and by NCCL.
/// `comm::MetaCommunicator` records calls.
pub trait Communicator {
    /// Members of the group.
    fn size(&self) -> usize;

    /// This rank's position among them.
    fn position(&self) -> usize;

    /// Makes `call` in the order of `stream`.
    ///
    /// # Errors
    /// A peer that failed, left, is late or makes another call; tensors that the call does not take.
    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError>;

    /// [`Call::AllReduce`]
    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.call(stream, Call::AllReduce(x, reduction))
    }

    /// [`Call::ReduceScatter`]
    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.call(stream, Call::ReduceScatter(x, tree))
    }

    /// [`Call::AllGather`]
    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.call(stream, Call::AllGather(x))
    }

    /// [`Call::AllToAll`]
    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.call(stream, Call::AllToAll { from, to })
    }

    /// [`Call::ExchangeRows`]
    fn exchange_rows(&self, stream: Stream, from: Tensor, to: Tensor, rows: ExchangedRows) -> Result<(), DeviceError> {
        self.call(stream, Call::ExchangeRows { from, to, rows })
    }

    /// [`Call::Shift`]
    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.call(stream, Call::Shift { from, to })
    }

    /// [`Call::Send`]
    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.call(stream, Call::Send { to, tag, x })
    }

    /// [`Call::Receive`]
    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.call(stream, Call::Receive { from, tag, x })
    }
}

/// A group that someone else looks at too.
impl<C: Communicator + ?Sized> Communicator for Arc<C> {
    fn size(&self) -> usize {
        (**self).size()
    }

    fn position(&self) -> usize {
        (**self).position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        (**self).call(stream, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn numbers_on_the_wire_are_places_in_the_list() {
        for operation in Operation::ALL {
            assert_eq!(Operation::of_number(operation.number().into()), Some(operation));
        }
        assert_eq!(Operation::of_number(Operation::ALL.len() as u64), None);
    }

    #[test]
    fn a_member_gives_and_gets_the_parts_of_its_place() {
        let (x, y) = (Tensor::new(0, 1, 12, Dtype::F32), Tensor::new(64, 1, 12, Dtype::F32));
        let parts = |call: Call, position: usize| {
            let bytes = call.parts(3, position).map(|parts| parts.iter().map(Tensor::bytes).collect::<Vec<_>>());
            format!("{bytes:?}")
        };
        assert_eq!(parts(Call::AllGather(x), 0), "[[0..16], [16..48]]");
        assert_eq!(parts(Call::AllGather(x), 1), "[[16..32], [0..16, 32..48]]");
        assert_eq!(parts(Call::ReduceScatter(x, SumTree::RANK_ORDER), 2), "[[0..48], [32..48]]");
        assert_eq!(parts(Call::Shift { from: x, to: y }, 1), "[[0..48], [64..112]]");
        assert_eq!(parts(Call::Send { to: 0, tag: 0, x }, 1), "[[0..48], []]");
        assert!(Call::AllGather(x).is_in_place() && !Call::AllToAll { from: x, to: y }.is_in_place());
    }
}
