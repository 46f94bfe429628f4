//! Collectives, sends and receives of tensors among the ranks of one group.

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

    /// Joins `x` over the group in place; every member ends with the same bits.
    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError>;

    /// `x` is `size` equal slices; slice `position` ends as the sum over the group in the order of `tree`, the others
    /// are unspecified.
    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError>;

    /// `x` is `size` equal slices; every member ends with all of them, slice `p` from member `p`.
    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError>;

    /// `from` and `to` are `size` equal slices each, in places that do not overlap; slice `p` of `to` ends as slice
    /// `position` of the `from` of member `p`.
    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError>;

    /// `to` ends as the `from` of the previous member, counted round; the two places do not overlap.
    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError>;

    /// Posts `x` to member `to` without blocking. `x` must not be written until `to` has received it.
    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError>;

    /// Fills `x` with what member `from` sent under `tag`.
    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError>;
}

/// A group that someone else looks at too.
impl<C: Communicator + ?Sized> Communicator for Arc<C> {
    fn size(&self) -> usize {
        (**self).size()
    }

    fn position(&self) -> usize {
        (**self).position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        (**self).all_reduce(stream, x, reduction)
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        (**self).reduce_scatter(stream, x, tree)
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        (**self).all_gather(stream, x)
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        (**self).all_to_all(stream, from, to)
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        (**self).shift(stream, from, to)
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        (**self).send(stream, to, tag, x)
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        (**self).receive(stream, from, tag, x)
    }
}
