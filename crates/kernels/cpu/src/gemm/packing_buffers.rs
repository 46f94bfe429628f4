//! Memory for packed panels, and for results before they are rounded.

use device::{DeviceError, Mapping};

use super::blocks::{PACKED_A, PACKED_B};

/// Elements of a block: 1.625 MiB, written and read again soon. With the packed blocks they fill two huge pages and no
/// third.
pub(super) const BLOCK: usize = 416 * 1024;
/// Most columns of a block.
pub(super) const MAX_COLUMNS: usize = 2048;
/// Elements of a block, and of its part of the bias.
pub(super) const STAGED: usize = BLOCK + MAX_COLUMNS;

/// Arenas below this are small: at most eight times the buffers.
const SMALL_ARENA_BYTES: usize = 32 << 20;

/// Room for one packed block of A, one of B, and one of C before it is rounded, of constant size
/// ([`PackingBuffers::BYTES`]). Allocated once per thread that multiplies; what it holds between calls has no meaning.
pub struct PackingBuffers {
    memory: Mapping,
}

/// Room for the packed blocks of one product.
pub(super) struct PackedBuffers<'a> {
    /// `PACKED_A` elements.
    pub a: &'a mut [f32],
    /// `PACKED_B` elements.
    pub b: &'a mut [f32],
}

impl PackingBuffers {
    /// Bytes of a set of buffers.
    pub const BYTES: usize = (PACKED_A + PACKED_B + STAGED) * size_of::<f32>();

    /// Allocates the buffers.
    pub fn new() -> Self {
        Self { memory: Mapping::or_abort(Self::BYTES) }
    }

    /// The buffers of a thread of a rank whose arena has `arena_bytes`. Products of a small rank fill little of them,
    /// and huge pages, which are in memory as a whole, would take as much as its arena.
    ///
    /// # Errors
    /// [`DeviceError::Buffers`].
    pub(crate) fn of_rank(arena_bytes: usize) -> Result<Self, DeviceError> {
        let memory = match arena_bytes < SMALL_ARENA_BYTES {
            true => Mapping::of_small_pages(Self::BYTES),
            false => Mapping::new(Self::BYTES),
        };
        let refused = |_| DeviceError::Buffers { bytes: Self::BYTES, holder: "packed operands of a thread" };
        Ok(Self { memory: memory.map_err(refused)? })
    }

    /// Room for packed blocks, and `STAGED` elements for results before they are rounded.
    pub(super) fn packed(&mut self) -> (PackedBuffers<'_>, &mut [f32]) {
        let (a, rest) = bytemuck::cast_slice_mut(&mut self.memory).split_at_mut(PACKED_A);
        let (b, stage) = rest.split_at_mut(PACKED_B);
        (PackedBuffers { a, b }, stage)
    }

    /// The same memory for products in AMX order; the first byte begins a cache line.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

// A huge page is in memory as a whole as soon as it is touched: what little stood in a third would take 2 MiB of every
// thread.
const _: () = assert!(PackingBuffers::BYTES <= 4 << 20);

impl Default for PackingBuffers {
    fn default() -> Self {
        Self::new()
    }
}
