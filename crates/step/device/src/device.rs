//! The executor of operations.

use std::sync::Arc;
use std::time::Instant;

use crate::{DeviceError, Op, Stream, StreamEvent, Tensor};

/// Executes operations in the order in which they are submitted to a stream.
///
/// The device owns (a handle of) the rank's arena; tensors are places in it. Work on different streams is in no order
/// but that of [`Device::wait`].
pub trait Device {
    /// Enqueues `op` on `stream`. Errors name the operation and its tensors.
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError>;

    /// Copies host bytes into a dense tensor of exactly that many bytes, as work of `stream`. `from` may change as soon
    /// as this returns.
    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies host bytes into a dense tensor of exactly that many bytes, after all earlier work on every stream.
    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies a dense tensor into host bytes of exactly its size, after all earlier work on every stream.
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError>;

    /// The point that `stream` reaches when it has ended what was submitted so far.
    fn record(&self, stream: Stream) -> StreamEvent;

    /// When the stream reached `event`, where it has a thread or queue of its own and the device keeps time.
    fn reached(&self, event: StreamEvent) -> Option<Instant>;

    /// Whatever is submitted to `stream` from here on begins after `event`. It may block the caller.
    ///
    /// # Errors
    /// A failure on the awaited stream.
    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError>;

    /// Waits until every stream has ended what was submitted to it.
    ///
    /// # Errors
    /// The first failure of a stream.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Points that are recorded from here on keep these times. Devices that always keep all do nothing.
    fn keep_times(&self, _times: KeptTimes) {}
}

/// The points of streams that keep the time at which they are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptTimes {
    /// Those between which work is submitted together.
    OfWaits,
    /// All of them.
    OfAll,
}

/// A device around another one, which has every call that it does not handle itself.
pub trait Around {
    /// The device within.
    fn inner(&self) -> &dyn Device;

    /// Passes on [`Device::submit`].
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.inner().submit(stream, op)
    }

    /// Passes on [`Device::upload`].
    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner().upload(stream, to, from)
    }

    /// Passes on [`Device::write`].
    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner().write(to, from)
    }

    /// Passes on [`Device::read`].
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner().read(from, to)
    }

    /// Passes on [`Device::record`].
    fn record(&self, stream: Stream) -> StreamEvent {
        self.inner().record(stream)
    }

    /// Passes on [`Device::reached`].
    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        self.inner().reached(event)
    }

    /// Passes on [`Device::wait`].
    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        self.inner().wait(stream, event)
    }

    /// Passes on [`Device::synchronize`].
    fn synchronize(&self) -> Result<(), DeviceError> {
        self.inner().synchronize()
    }

    /// Passes on [`Device::keep_times`].
    fn keep_times(&self, times: KeptTimes) {
        self.inner().keep_times(times);
    }
}

impl<A: Around> Device for A {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        Around::submit(self, stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        Around::upload(self, stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        Around::write(self, to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        Around::read(self, from, to)
    }

    fn record(&self, stream: Stream) -> StreamEvent {
        Around::record(self, stream)
    }

    fn reached(&self, event: StreamEvent) -> Option<Instant> {
        Around::reached(self, event)
    }

    fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        Around::wait(self, stream, event)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Around::synchronize(self)
    }

    fn keep_times(&self, times: KeptTimes) {
        Around::keep_times(self, times);
    }
}

/// Reads a rank's memory while its device works: the [`Stream::Io`] of storage. Nothing writes these bytes meanwhile;
/// the executor of instructions waits for the read.
pub trait MemoryReader: Send {
    /// Copies a dense tensor into host bytes of exactly its size.
    ///
    /// # Errors
    /// A tensor outside of memory, or of another size.
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError>;
}

/// A device that someone else looks at too: what recorded or counted is read while the rank has its own handle.
impl<D: Device> Around for Arc<D> {
    fn inner(&self) -> &dyn Device {
        &**self
    }
}
