//! Memory for packed panels, and for results before they are rounded.

use device::{Bf16, Mapping};

use super::blocks::{PACKED_A, PACKED_B};
use super::pairs::LARGEST_PANEL;
use super::rounded::STAGED;

/// Room for one packed block of A, one of B, and one of C before it is rounded, of constant size
/// ([`PackingBuffers::BYTES`]). Allocated once per thread that multiplies; what it holds between calls has no meaning.
pub struct PackingBuffers {
    memory: Mapping,
}

/// Room for the packed blocks of one product.
pub(super) struct PackedRooms<'a> {
    /// `PACKED_A` elements.
    pub a: &'a mut [f32],
    /// `PACKED_B` elements.
    pub b: &'a mut [f32],
}

/// Room for one packed block of A, one of B, operands before they are packed and sums, of a product in pairs.
pub(super) struct PairRooms<'a> {
    pub a: &'a mut [u8],
    pub b: &'a mut [u8],
    /// `LARGEST_PANEL` elements: operands are rounded, and then packed, by whole panels.
    pub rounded: &'a mut [Bf16],
    pub sums: &'a mut [f32],
}

/// Bytes of packed blocks of products in pairs; the rest is for sums. Each begins at a cache line.
const PAIRS_A: usize = 1 << 20;
const PAIRS_B: usize = 2 << 20;

impl PackingBuffers {
    /// Bytes of a set of buffers.
    pub const BYTES: usize = (PACKED_A + PACKED_B + STAGED) * size_of::<f32>();

    /// Allocates the buffers.
    pub fn new() -> Self {
        Self { memory: Mapping::or_abort(Self::BYTES) }
    }

    /// Room for packed blocks, and `STAGED` elements for results before they are rounded.
    pub(super) fn rooms(&mut self) -> (PackedRooms<'_>, &mut [f32]) {
        let (a, rest) = bytemuck::cast_slice_mut(&mut self.memory).split_at_mut(PACKED_A);
        let (b, stage) = rest.split_at_mut(PACKED_B);
        (PackedRooms { a, b }, stage)
    }

    /// The same memory for whoever multiplies small blocks; the first byte begins a cache line.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// The same memory for a product in pairs.
    pub(super) fn pair_rooms(&mut self) -> PairRooms<'_> {
        let (a, rest) = self.memory.split_at_mut(PAIRS_A);
        let (b, rest) = rest.split_at_mut(PAIRS_B);
        let (rounded, rest) = rest.split_at_mut(LARGEST_PANEL * size_of::<Bf16>());
        PairRooms { a, b, rounded: bytemuck::cast_slice_mut(rounded), sums: bytemuck::cast_slice_mut(rest) }
    }
}

// A huge page is in memory as a whole as soon as it is touched: what little stood in a third would take 2 MiB of every thread.
const _: () = assert!(PackingBuffers::BYTES <= 4 << 20);

impl Default for PackingBuffers {
    fn default() -> Self {
        Self::new()
    }
}
