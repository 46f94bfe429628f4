//! A section of the arena that is handed out from its start, like a stack frame.

use std::cell::Cell;

use crate::{Dtype, Tensor};

/// Tensors in a frame start on a multiple of this many bytes: the lines of a CPU's caches divide it, and those that a
/// GPU copies together.
pub const ALIGN_BYTES: usize = 256;

/// Hands out consecutive tensors of a section. The same calls give the same places, so the backward pass finds
/// what the forward pass saved by laying the frame out again.
#[derive(Clone, Debug)]
pub struct Frame {
    start_bytes: usize,
    capacity_bytes: usize,
    used_bytes: Cell<usize>,
    peak_bytes: Cell<usize>,
}

impl Frame {
    /// The section of `capacity_bytes` at `start_bytes` of the arena; `start_bytes` is a multiple of [`ALIGN_BYTES`].
    pub fn new(start_bytes: usize, capacity_bytes: usize) -> Frame {
        debug_assert!(start_bytes.is_multiple_of(ALIGN_BYTES), "frame at {start_bytes}");
        Frame { start_bytes, capacity_bytes, used_bytes: Cell::new(0), peak_bytes: Cell::new(0) }
    }

    /// A frame without a limit, to find out how much is needed.
    pub fn measuring() -> Frame {
        Frame::new(0, usize::MAX)
    }

    /// A frame outside of every arena: tensors can be laid out in it, and a device that is asked to touch one fails.
    pub fn nowhere() -> Frame {
        Frame::new(1 << 62, usize::MAX)
    }

    /// The next `[rows, cols]`. Exceeding the section is a fault of the memory plan, never of the user.
    pub fn tensor(&self, rows: usize, cols: usize, dtype: Dtype) -> Tensor {
        let offset = self.used_bytes.get();
        let tensor = Tensor::new(self.start_bytes + offset, rows, cols, dtype);
        let end = (offset + tensor.size_bytes()).next_multiple_of(ALIGN_BYTES);
        assert!(end <= self.capacity_bytes, "frame of {} bytes is asked for {end}: {tensor:?}", self.capacity_bytes);
        self.used_bytes.set(end);
        self.peak_bytes.set(self.peak_bytes.get().max(end));
        tensor
    }

    /// Shorthand for [`Frame::tensor`] with [`Dtype::F32`].
    pub fn floats(&self, rows: usize, cols: usize) -> Tensor {
        self.tensor(rows, cols, Dtype::F32)
    }

    /// Runs `body` and takes back everything that it was handed.
    pub fn scoped<R>(&self, body: impl FnOnce() -> R) -> R {
        let used = self.used_bytes.get();
        let result = body();
        self.used_bytes.set(used);
        result
    }

    /// Bytes handed out now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    /// Most bytes handed out at once.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.get()
    }
}
