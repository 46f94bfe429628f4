//! The memory of a rank on its GPU, with the streams that work on it.

use std::sync::Arc;

use config::Products;
use device::{ArenaSize, DeviceError, Stream, Tensor};
use gpu::{DevicePointer, DriverError, DriverErrorKind, Gpu, PinnedHandle, StreamHandle};

use crate::failure::accelerator_error;
use crate::host_memory::HostMemory;
use crate::launch::{Code as LoadedCode, Site};
use crate::owned::{Owned, allocate, create_stream, create_urgent_stream};

/// Readers share it.
pub(crate) struct RankMemory {
    pub(crate) gpu: Arc<dyn Gpu>,
    /// By number.
    pub(crate) streams: Vec<Owned<StreamHandle>>,
    arena: Owned<DevicePointer>,
    pub(crate) host: HostMemory,
    /// The first address after both memories.
    pub(crate) end_bytes: usize,
}

impl RankMemory {
    pub(crate) fn allocate(gpu: Arc<dyn Gpu>, size: ArenaSize) -> Result<RankMemory, DeviceError> {
        let ArenaSize { host_bytes, device_bytes } = size;
        let failed = |what: String, full: DeviceError| {
            |cause: DriverError| match cause.kind == DriverErrorKind::OutOfMemory {
                true => full,
                false => accelerator_error(what, cause),
            }
        };
        let remedy = "a smaller microbatch, more ranks or a higher ZeRO stage need less";
        let full = DeviceError::OutOfMemory { bytes: device_bytes, remedy };
        let arena = allocate(&gpu, device_bytes.max(1));
        let arena = arena.map_err(failed(format!("allocate an arena of {device_bytes} bytes"), full))?;
        let what = format!("allocate {host_bytes} bytes of pinned memory");
        let full = DeviceError::OutOfHostMemory { bytes: host_bytes };
        let host = HostMemory::allocate(&gpu, host_bytes).map_err(failed(what, full))?;
        let streams = Stream::ALL.iter().map(|stream| stream_for(*stream, &gpu)).collect::<Result<_, _>>();
        let streams = streams.map_err(|cause| accelerator_error("create streams".into(), cause))?;
        Ok(RankMemory { gpu, streams, arena, host, end_bytes: size.end_bytes() })
    }

    /// The address of offset 0, which is on the GPU only where no memory of the host comes first.
    pub(crate) fn base(&self) -> DevicePointer {
        self.arena.handle().before(self.host.bytes())
    }

    /// Refuses a tensor that is not dense, outside of the arena, or of another size than the host's bytes.
    pub(crate) fn check_host_copy(
        &self,
        op: &'static str,
        tensor: Tensor,
        host_bytes: usize,
    ) -> Result<(), DeviceError> {
        tensor.has_host_bytes(op, host_bytes)?;
        tensor.is_dense_of(tensor.dtype)?;
        tensor.inside(self.end_bytes)
    }

    /// Copies a tensor through `pinned` memory of `pinned_bytes`, and waits for it.
    pub(crate) fn download(
        &self,
        stream: StreamHandle,
        pinned: PinnedHandle,
        pinned_bytes: usize,
        from: Tensor,
        to: &mut [u8],
    ) -> Result<(), DriverError> {
        if let Some((host, offset_bytes)) = self.host.place(from) {
            self.gpu.synchronize(stream)?;
            return self.gpu.read_pinned(host, offset_bytes, to);
        }
        let mut place = self.address(from);
        for piece in to.chunks_mut(pinned_bytes) {
            self.gpu.download(stream, pinned, 0, place, piece.len())?;
            self.gpu.synchronize(stream)?;
            self.gpu.read_pinned(pinned, 0, piece)?;
            place = place.offset(piece.len());
        }
        Ok(())
    }

    pub(crate) fn site(&self, products: Products, code: LoadedCode) -> Site {
        Site {
            arena: self.base(),
            arena_bytes: self.end_bytes,
            multiprocessors: self.gpu.facts().multiprocessors,
            capability: self.gpu.facts().capability,
            products,
            code,
            tile: None,
        }
    }

    /// The driver's stream of `stream`.
    pub(crate) fn stream(&self, stream: Stream) -> StreamHandle {
        self.streams[stream.index()].handle()
    }

    /// The address of a tensor.
    pub(crate) fn address(&self, tensor: Tensor) -> DevicePointer {
        self.base().offset(tensor.offset_bytes)
    }

    /// Waits until all work of all streams has ended.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.streams.iter().try_for_each(|stream| self.gpu.synchronize(stream.handle()))
    }
}

/// Other ranks wait for work of streams that communicate. Without priority it begins after all blocks of
/// products that were submitted before.
fn stream_for(stream: Stream, gpu: &Arc<dyn Gpu>) -> Result<Owned<StreamHandle>, DriverError> {
    match stream {
        Stream::Reduce | Stream::Transfer | Stream::Shift => create_urgent_stream(gpu),
        Stream::Compute | Stream::Io | Stream::Fetch | Stream::Offload => create_stream(gpu),
    }
}

impl Drop for RankMemory {
    fn drop(&mut self) {
        // The rank ends; there is nobody to tell of an error.
        let _ = self.synchronize();
    }
}
