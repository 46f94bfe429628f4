//! Reads a rank's memory while its streams go on: a stream and pinned memory of its own.

use std::sync::Arc;

use device::{DeviceError, MemoryReader, Stream, Tensor};
use gpu::{DriverError, EventHandle, PinnedHandle, StreamHandle};

use crate::device::{RankMemory, accelerator_error};

/// Bytes of pinned memory of a reader: the most that is copied at a time.
pub(crate) const READER_BYTES: usize = 4 << 20;

/// Reads tensors of a [`crate::CudaDevice`] behind all work that was submitted before the call, without stopping what follows.
pub struct CudaReader {
    memory: Arc<RankMemory>,
    stream: StreamHandle,
    pinned: PinnedHandle,
    events: [EventHandle; Stream::COUNT],
}

impl CudaReader {
    pub(crate) fn new(memory: Arc<RankMemory>) -> Result<CudaReader, DriverError> {
        let gpu = &*memory.gpu;
        let stream = gpu.create_stream()?;
        let pinned = gpu.allocate_pinned(READER_BYTES)?;
        let mut events = [EventHandle(0); Stream::COUNT];
        for event in &mut events {
            *event = gpu.create_event()?;
        }
        Ok(CudaReader { memory, stream, pinned, events })
    }

    fn copy(&self, from: Tensor, to: &mut [u8]) -> Result<(), DriverError> {
        let gpu = &*self.memory.gpu;
        for (event, stream) in self.events.iter().zip(self.memory.streams) {
            gpu.record(*event, stream)?;
            gpu.wait(self.stream, *event)?;
        }
        self.memory.download(self.stream, self.pinned, READER_BYTES, from, to)
    }
}

impl MemoryReader for CudaReader {
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.check_host_copy("read", from, to.len())?;
        self.copy(from, to).map_err(|cause| accelerator_error(format!("read {from:?} to save it"), cause))
    }
}

impl Drop for CudaReader {
    fn drop(&mut self) {
        let gpu = &*self.memory.gpu;
        // Its copies have ended, for each call waits for them; there is nobody to tell of an error.
        let _ = gpu.destroy_stream(self.stream);
        let _ = gpu.free_pinned(self.pinned);
        for event in self.events {
            let _ = gpu.destroy_event(event);
        }
    }
}
