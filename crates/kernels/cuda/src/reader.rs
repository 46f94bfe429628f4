//! Reads a rank's memory while its streams continue: a stream and pinned memory of its own.

use std::sync::Arc;

use device::{DeviceError, MemoryReader, Stream, Tensor};
use gpu::{DriverError, EventHandle, PinnedHandle, StreamHandle};

use crate::failure::accelerator_error;
use crate::owned::{Owned, allocate_pinned, create_event, create_stream};
use crate::submitter::Submitter;

/// Bytes of pinned memory of a reader: the most that is copied at a time.
pub(crate) const READER_BYTES: usize = 4 << 20;

/// Reads tensors of a [`crate::CudaDevice`] after all work that was submitted before the call, without stopping what
/// follows.
pub struct CudaReader {
    submitter: Arc<Submitter>,
    stream: Owned<StreamHandle>,
    pinned: Owned<PinnedHandle>,
    /// One for each stream of the rank.
    events: Vec<Owned<EventHandle>>,
}

impl CudaReader {
    pub(crate) fn new(submitter: Arc<Submitter>) -> Result<CudaReader, DriverError> {
        let gpu = &submitter.memory.gpu;
        let (stream, pinned) = (create_stream(gpu)?, allocate_pinned(gpu, READER_BYTES)?);
        let events = Stream::ALL.iter().map(|_| create_event(gpu)).collect::<Result<_, _>>()?;
        Ok(CudaReader { submitter, stream, pinned, events })
    }

    fn copy(&self, from: Tensor, to: &mut [u8]) -> Result<(), DriverError> {
        let memory = &self.submitter.memory;
        let gpu = &*memory.gpu;
        for (event, stream) in self.events.iter().zip(&memory.streams) {
            gpu.record(event.handle(), stream.handle())?;
            gpu.wait(self.stream.handle(), event.handle())?;
        }
        memory.download(self.stream.handle(), self.pinned.handle(), READER_BYTES, from, to)
    }
}

impl MemoryReader for CudaReader {
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.submitter.memory.check_host_copy("read", from, to.len())?;
        self.submitter.launch_all()?;
        self.copy(from, to).map_err(|cause| accelerator_error(format!("read {from:?} to save it"), cause))
    }
}
