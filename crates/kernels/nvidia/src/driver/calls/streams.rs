//! Streams, events and copies.

use std::ffi::c_int;
use std::ptr::null_mut;

use gpu::DriverError;

use super::super::constants::NON_BLOCKING;
use super::super::functions::{Event, Status, Stream};
use super::super::status::SUCCESS;
use super::entry::Api;
use super::memory::Pinned;

/// `CUDA_ERROR_NOT_READY`: work that has not ended.
const NOT_READY: Status = Status(600);

impl Api {
    /// The highest priority of streams of the current GPU: a lower number is a higher priority.
    pub(in crate::driver) fn highest_priority(&self) -> Result<c_int, DriverError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the call writes two ints.
        let status = unsafe { (self.streams.priorities)(&mut least, &mut greatest) };
        self.checked("cuCtxGetStreamPriorityRange", status)?;
        Ok(greatest)
    }

    /// A stream that does not wait for the default stream.
    pub(in crate::driver) fn create_stream(&self, priority: c_int) -> Result<Stream, DriverError> {
        let mut stream = Stream(null_mut());
        // SAFETY: the call writes one address.
        let status = unsafe { (self.streams.create)(&mut stream, NON_BLOCKING, priority) };
        self.checked("cuStreamCreateWithPriority", status)?;
        Ok(stream)
    }

    pub(in crate::driver) fn destroy_stream(&self, stream: Stream) -> Result<(), DriverError> {
        // SAFETY: see the module; it is used no more.
        self.checked("cuStreamDestroy", unsafe { (self.streams.destroy)(stream) })
    }

    pub(in crate::driver) fn synchronize(&self, stream: Stream) -> Result<(), DriverError> {
        // SAFETY: see the module.
        self.checked("cuStreamSynchronize", unsafe { (self.streams.synchronize)(stream) })
    }

    pub(in crate::driver) fn has_ended(&self, stream: Stream) -> Result<bool, DriverError> {
        // SAFETY: see the module.
        self.ready("cuStreamQuery", unsafe { (self.streams.query)(stream) })
    }

    pub(in crate::driver) fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        // SAFETY: see the module; flags must be 0.
        self.checked("cuStreamWaitEvent", unsafe { (self.streams.wait)(stream, event, 0) })
    }

    /// An event that keeps its time.
    pub(in crate::driver) fn create_event(&self) -> Result<Event, DriverError> {
        let mut event = Event(null_mut());
        // SAFETY: the call writes one address.
        self.checked("cuEventCreate", unsafe { (self.streams.create_event)(&mut event, 0) })?;
        Ok(event)
    }

    pub(in crate::driver) fn destroy_event(&self, event: Event) -> Result<(), DriverError> {
        // SAFETY: see the module; it is used no more by the host, and the driver keeps it for streams that wait for it.
        self.checked("cuEventDestroy", unsafe { (self.streams.destroy_event)(event) })
    }

    pub(in crate::driver) fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        // SAFETY: see the module.
        self.checked("cuEventRecord", unsafe { (self.streams.record)(event, stream) })
    }

    pub(in crate::driver) fn is_reached(&self, event: Event) -> Result<bool, DriverError> {
        // SAFETY: see the module.
        self.ready("cuEventQuery", unsafe { (self.streams.query_event)(event) })
    }

    pub(in crate::driver) fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, DriverError> {
        let mut elapsed = 0.0;
        // SAFETY: see the module; the call writes one number.
        self.checked("cuEventElapsedTime", unsafe { (self.elapsed)(&mut elapsed, from, to) })?;
        Ok(elapsed)
    }

    /// Copies `bytes` of pinned memory to the GPU.
    pub(in crate::driver) fn upload(
        &self,
        stream: Stream,
        to: u64,
        (pinned, offset): (Pinned, usize),
        bytes: usize,
    ) -> Result<(), DriverError> {
        let from = pinned.place(offset, bytes).cast_const().cast();
        // SAFETY: both ranges are allocated, and stay so until the work has ended by the contract of `Gpu`.
        self.checked("cuMemcpyHtoDAsync", unsafe { (self.streams.upload)(to, from, bytes, stream) })
    }

    /// Copies `bytes` of the GPU to pinned memory.
    pub(in crate::driver) fn download(
        &self,
        stream: Stream,
        (pinned, offset): (Pinned, usize),
        from: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let to = pinned.place(offset, bytes).cast();
        // SAFETY: as above.
        self.checked("cuMemcpyDtoHAsync", unsafe { (self.streams.download)(to, from, bytes, stream) })
    }

    pub(in crate::driver) fn copy(&self, stream: Stream, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: as above.
        self.checked("cuMemcpyDtoDAsync", unsafe { (self.streams.copy)(to, from, bytes, stream) })
    }

    pub(in crate::driver) fn fill(&self, stream: Stream, to: u64, value: u8, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: as above.
        self.checked("cuMemsetD8Async", unsafe { (self.streams.fill)(to, value, bytes, stream) })
    }

    fn ready(&self, call: &'static str, status: Status) -> Result<bool, DriverError> {
        match status {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            failed => self.checked(call, failed).map(|()| true),
        }
    }
}
