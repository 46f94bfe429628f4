//! Memory for packed panels, and for results before they are rounded.

use super::blocks::{PACKED_A, PACKED_B};
use super::rounded::STAGED;
use crate::aligned::Aligned;

/// Room for one packed block of A, one of B, and one of C before it is rounded, of constant size
/// ([`PackingBuffers::BYTES`]). Allocated once per thread that multiplies; what it holds between calls has no meaning.
pub struct PackingBuffers {
    pub(super) panels: PanelBuffers,
    /// `STAGED` elements.
    pub(super) stage: Aligned,
}

/// Room for the packed blocks of one product.
pub(super) struct PanelBuffers {
    a: Aligned,
    b: Aligned,
}

impl PackingBuffers {
    /// Bytes of a set of buffers.
    pub const BYTES: usize = (PACKED_A + PACKED_B + STAGED) * size_of::<f32>();

    /// Allocates the buffers.
    pub fn new() -> Self {
        let panels = PanelBuffers { a: Aligned::new(PACKED_A), b: Aligned::new(PACKED_B) };
        Self { panels, stage: Aligned::new(STAGED) }
    }
}

impl PanelBuffers {
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
