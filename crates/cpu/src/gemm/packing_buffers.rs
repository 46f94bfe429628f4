//! Memory for packed panels.

use super::blocks::{PACKED_A, PACKED_B};

const LINE: usize = 16;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read and written through addresses")] [f32; LINE]);

/// Room for one packed block of A and one of B, of constant size ([`PackingBuffers::BYTES`]). Allocated once per
/// thread that multiplies; what it holds between calls has no meaning.
pub struct PackingBuffers {
    lines: Vec<Line>,
}

impl PackingBuffers {
    /// Bytes of a set of buffers.
    pub const BYTES: usize = (PACKED_A + PACKED_B) * size_of::<f32>();

    /// Allocates the buffers.
    pub fn new() -> Self {
        Self { lines: vec![Line([0.0; LINE]); (PACKED_A + PACKED_B) / LINE] }
    }

    /// The addresses of the block of A (`PACKED_A` elements) and of B (`PACKED_B` elements), at cache lines.
    pub(super) fn blocks(&mut self) -> (*mut f32, *mut f32) {
        let (a, b) = self.lines.split_at_mut(PACKED_A / LINE);
        (a.as_mut_ptr().cast(), b.as_mut_ptr().cast())
    }
}

impl Default for PackingBuffers {
    fn default() -> Self {
        Self::new()
    }
}
