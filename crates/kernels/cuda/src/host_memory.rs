//! The lowest addresses of a rank's arena, which are pinned memory of the host. Only copies reach it: kernels do not.

use std::sync::Arc;

use device::{DeviceError, Dtype, Op, Tensor};
use gpu::{DevicePointer, DriverError, Gpu, PinnedHandle, StreamHandle};

use crate::owned::{Owned, allocate_pinned};

/// Bytes that pass the host's own memory at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Pinned memory for state between its uses.
pub(crate) struct HostMemory {
    /// None where the arena has no such memory.
    pinned: Option<Owned<PinnedHandle>>,
    bytes: usize,
}

/// Work on memory of the host, with offsets in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostWork {
    /// To the arena's memory of the GPU.
    Fetch { from: usize, to: Tensor, bytes: usize },
    /// From there.
    Offload { from: Tensor, to: usize, bytes: usize },
    /// Within memory of the host.
    Move { from: usize, to: usize, bytes: usize },
    /// Zeros.
    Clear { to: usize, bytes: usize },
}

impl HostMemory {
    /// Allocates `bytes`.
    ///
    /// # Errors
    /// The driver's, where the host has not as much memory that can be locked.
    pub fn allocate(gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<HostMemory, DriverError> {
        let pinned = (bytes > 0).then(|| allocate_pinned(gpu, bytes)).transpose()?;
        Ok(HostMemory { pinned, bytes })
    }

    /// The first address that is not memory of the host.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The handle with the offset of a tensor in this memory; `None` for a tensor of the GPU.
    pub fn place(&self, tensor: Tensor) -> Option<(PinnedHandle, usize)> {
        let pinned = self.pinned.as_ref()?;
        (tensor.offset_bytes < self.bytes && !tensor.is_empty()).then(|| (pinned.handle(), tensor.offset_bytes))
    }

    /// The work of an operation with operands here; `None` where all are on the GPU.
    ///
    /// # Errors
    /// An operation that is a kernel's; a copy between tensors of different types or lengths, or with gaps.
    pub fn work(&self, op: &Op) -> Result<Option<HostWork>, DeviceError> {
        let operands = op.operands();
        let is_here = |tensor: Tensor| self.place(tensor).is_some();
        if !operands.reads().chain(operands.writes()).any(is_here) {
            return Ok(None);
        }
        let refused = |what: String| Err(DeviceError::Shape { op: op.name(), what });
        if let Op::Copy { from, to } = *op {
            if from.dtype != to.dtype || from.len() != to.len() || !from.is_dense() || !to.is_dense() {
                return refused(format!("{from:?} and {to:?} differ in type or length, or have gaps"));
            }
            let bytes = from.size_bytes();
            return Ok(Some(match (is_here(from), is_here(to)) {
                (true, true) => HostWork::Move { from: from.offset_bytes, to: to.offset_bytes, bytes },
                (true, false) => HostWork::Fetch { from: from.offset_bytes, to, bytes },
                (false, _) => HostWork::Offload { from, to: to.offset_bytes, bytes },
            }));
        }
        if let Op::Fill { out, value } = *op
            && value == 0.0
            && out.is_dense()
            && out.dtype == Dtype::F32
        {
            return Ok(Some(HostWork::Clear { to: out.offset_bytes, bytes: out.size_bytes() }));
        }
        refused(format!("{op:?} has operands in memory of the host, which only copies reach"))
    }

    /// Submits `work` to `stream`. `base` is the address of offset 0 of the arena on the GPU. Work within
    /// memory of the host is done when this returns.
    ///
    /// # Errors
    /// The driver's.
    pub fn submit(
        &self,
        gpu: &dyn Gpu,
        stream: StreamHandle,
        base: DevicePointer,
        work: HostWork,
    ) -> Result<(), DriverError> {
        let Some(pinned) = self.pinned.as_ref().map(Owned::handle) else { return Ok(()) };
        match work {
            HostWork::Fetch { from, to, bytes } => {
                gpu.upload(stream, base.offset(to.offset_bytes), pinned, from, bytes)
            }
            HostWork::Offload { from, to, bytes } => {
                gpu.download(stream, pinned, to, base.offset(from.offset_bytes), bytes)
            }
            HostWork::Move { from, to, bytes } => {
                gpu.synchronize(stream)?;
                let mut piece = vec![0; bytes.min(PIECE_BYTES)];
                (0..bytes).step_by(PIECE_BYTES).try_for_each(|start| {
                    let piece = &mut piece[..PIECE_BYTES.min(bytes - start)];
                    gpu.read_pinned(pinned, from + start, piece)?;
                    gpu.write_pinned(pinned, to + start, piece)
                })
            }
            HostWork::Clear { to, bytes } => {
                gpu.synchronize(stream)?;
                let zeros = vec![0; bytes.min(PIECE_BYTES)];
                (0..bytes).step_by(PIECE_BYTES).try_for_each(|start| {
                    gpu.write_pinned(pinned, to + start, &zeros[..PIECE_BYTES.min(bytes - start)])
                })
            }
        }
    }
}
