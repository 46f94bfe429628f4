//! Memory for packed panels.

use super::blocks::{PACKED_A, PACKED_B};
use crate::aligned::Aligned;

/// Room for one packed block of A and one of B, of constant size ([`PackingBuffers::BYTES`]). Allocated once per
/// thread that multiplies; what it holds between calls has no meaning.
pub struct PackingBuffers {
    a: Aligned,
    b: Aligned,
}

impl PackingBuffers {
    /// Bytes of a set of buffers.
    pub const BYTES: usize = (PACKED_A + PACKED_B) * size_of::<f32>();

    /// Allocates the buffers.
    pub fn new() -> Self {
        Self { a: Aligned::new(PACKED_A), b: Aligned::new(PACKED_B) }
    }

    /// The addresses of the block of A (`PACKED_A` elements) and of B (`PACKED_B` elements).
    pub(super) fn blocks(&mut self) -> (*mut f32, *mut f32) {
        (self.a.as_mut_ptr(), self.b.as_mut_ptr())
    }
}

impl Default for PackingBuffers {
    fn default() -> Self {
        Self::new()
    }
}
