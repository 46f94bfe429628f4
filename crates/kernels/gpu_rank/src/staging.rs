//! Copies between the arena of a rank on its GPU and a mirror of it in host memory, through pinned memory of fixed
//! size.
//!
//! The mirror has the arena's offsets. The system gives it pages where something is communicated, and only there.

use std::sync::{Arc, Mutex};

use device::{Arena, DeviceError, Stream, Tensor};
use gpu::{DriverError, Gpu, PinnedHandle};
use sync::lock;

use crate::rank_streams::{RankStreams, driver_error};

/// Pinned memory of a stream that communicates: the most that is copied at a time.
pub const STAGING_BYTES: usize = 4 << 20;

/// The mirror of a rank's arena and the copies to and from it.
pub struct Staging {
    streams: RankStreams,
    mirror: Arc<Arena>,
    /// By stream; allocated when a stream communicates for the first time.
    pinned: [Mutex<Option<PinnedHandle>>; Stream::COUNT],
}

impl Staging {
    /// A mirror of the arena of `streams`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where the system has no such range of addresses.
    pub fn new(streams: RankStreams) -> Result<Staging, DeviceError> {
        let mirror = Arc::new(Arena::new(streams.device.arena_bytes())?);
        Ok(Staging { streams, mirror, pinned: Default::default() })
    }

    /// The copy of the GPU's arena in memory of the host.
    pub fn mirror(&self) -> &Arc<Arena> {
        &self.mirror
    }

    /// The streams that copy.
    pub(crate) fn streams(&self) -> &RankStreams {
        &self.streams
    }

    /// Copies `x` from the GPU to the mirror, after all earlier work of `stream`, and waits for it.
    ///
    /// # Errors
    /// The driver's, those of earlier work too; a tensor outside of the arena.
    pub(crate) fn download(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: the stream runs one call at a time, others that touch `x` wait for it, and the mirror of a lent
        // tensor is not downloaded again before its place may be written.
        let bytes = unsafe { self.mirror.bytes_mut(x) }?;
        let handle = self.streams.handle(stream)?;
        let copied = self.with_pinned(stream, |gpu, pinned| {
            let mut from = self.streams.device.arena().offset(x.offset_bytes);
            for piece in bytes.chunks_mut(STAGING_BYTES) {
                gpu.download(handle, pinned, 0, from, piece.len())?;
                gpu.synchronize(handle)?;
                gpu.read_pinned(pinned, 0, piece)?;
                from = from.offset(piece.len());
            }
            Ok(())
        });
        copied.map_err(driver_error(format!("copy {x:?} to the host")))
    }

    /// Copies `x` from the mirror to the GPU, as work of `stream`. It may not have ended when this returns.
    ///
    /// # Errors
    /// The errors of [`Staging::download`].
    pub(crate) fn upload(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        // SAFETY: as in `download`; nothing writes the mirror of `x` but calls of this stream.
        let bytes = unsafe { self.mirror.bytes(x) }?;
        let handle = self.streams.handle(stream)?;
        let copied = self.with_pinned(stream, |gpu, pinned| {
            let mut to = self.streams.device.arena().offset(x.offset_bytes);
            for piece in bytes.chunks(STAGING_BYTES) {
                // The copy before may still read the pinned memory.
                gpu.synchronize(handle)?;
                gpu.write_pinned(pinned, 0, piece)?;
                gpu.upload(handle, to, pinned, 0, piece.len())?;
                to = to.offset(piece.len());
            }
            Ok(())
        });
        copied.map_err(driver_error(format!("copy {x:?} to the GPU")))
    }

    /// Lends the pinned memory of `stream`.
    fn with_pinned(
        &self,
        stream: Stream,
        copy: impl FnOnce(&dyn Gpu, PinnedHandle) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let gpu = &**self.streams.device.gpu();
        let mut pinned = lock(&self.pinned[self.streams.order.stream(stream).index()]);
        let handle = match *pinned {
            Some(handle) => handle,
            None => *pinned.insert(gpu.allocate_pinned(STAGING_BYTES)?),
        };
        copy(gpu, handle)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let gpu = &**self.streams.device.gpu();
        for (stream, pinned) in Stream::ALL.into_iter().zip(&self.pinned) {
            if let Some(pinned) = lock(pinned).take() {
                // The rank ends; there is nobody to tell of an error.
                let _ = gpu.synchronize(self.streams.device.stream(stream));
                let _ = gpu.free_pinned(pinned);
            }
        }
    }
}
