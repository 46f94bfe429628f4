//! A group whose calls are operations of [`RestingMemory`].

use std::rc::Rc;

use device::{Communicator, DeviceError, Reduction, Stream, SumTree, Tensor};

use crate::recheck::resting_memory::RestingMemory;

/// Guards the memory of a rank around the calls of a group.
pub(crate) struct GuardedGroup {
    inner: Box<dyn Communicator>,
    memory: Rc<RestingMemory>,
}

impl GuardedGroup {
    /// The same group.
    pub(crate) fn new(inner: Box<dyn Communicator>, memory: Rc<RestingMemory>) -> GuardedGroup {
        GuardedGroup { inner, memory }
    }
}

impl Communicator for GuardedGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.memory.guarded("all_reduce", &[], &[x], || self.inner.all_reduce(stream, x, reduction))
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.memory.guarded("reduce_scatter", &[], &[x], || self.inner.reduce_scatter(stream, x, tree))
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.memory.guarded("all_gather", &[], &[x], || self.inner.all_gather(stream, x))
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.memory.guarded("all_to_all", &[from], &[to], || self.inner.all_to_all(stream, from, to))
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.memory.guarded("shift", &[from], &[to], || self.inner.shift(stream, from, to))
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.memory.guarded("send", &[x], &[], || self.inner.send(stream, to, tag, x))
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.memory.guarded("receive", &[], &[x], || self.inner.receive(stream, from, tag, x))
    }
}
