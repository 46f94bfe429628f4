//! What executes operations.

use std::sync::Arc;

use crate::{DeviceError, Op, Tensor};

/// An in-order queue of a device. On a CPU rank all streams are the rank's own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Forward, backward and optimizer.
    Compute,
    /// Parameter gathers and gradient reductions.
    Reduce,
    /// Pipeline sends and receives.
    Transfer,
    /// Saving.
    Io,
}

/// Executes operations in the order in which they are submitted to a stream.
///
/// The device owns (a handle of) the rank's arena; tensors are places in it. `read` and `write` wait for all
/// earlier work on the tensor.
pub trait Device {
    /// Enqueues `op` on `stream`. Errors name the operation and its tensors.
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError>;

    /// Copies host bytes into a dense tensor of exactly that many bytes.
    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies a dense tensor into host bytes of exactly its size.
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError>;
}

/// Reads a rank's memory while its device works: the [`Stream::Io`] of storage. What it reads is not written meanwhile; whoever
/// executes instructions waits for that.
pub trait MemoryReader: Send {
    /// Copies a dense tensor into host bytes of exactly its size.
    ///
    /// # Errors
    /// A tensor outside of memory, or of another size.
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError>;
}

/// A device that someone else looks at too: what recorded or counted is read while the rank has its own handle.
impl<D: Device + ?Sized> Device for Arc<D> {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        (**self).submit(stream, op)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        (**self).write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        (**self).read(from, to)
    }
}
