//! A group whose calls are operations of [`RestingMemory`].

use std::rc::Rc;

use device::{Call, Communicator, DeviceError, Stream};

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

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let [reads, writes] = call.operands();
        self.memory.guarded(call.method(), reads.as_slice(), writes.as_slice(), || self.inner.call(stream, call))
    }
}
