//! Memory for the blocks of one query block and one tile of keys.

use super::{KEYS, MAX_HEAD_DIM, QUERIES};
use crate::aligned::Aligned;

/// Room for the blocks that attention works on, of constant size ([`AttentionBuffers::BYTES`]). Allocated once per
/// thread; what it holds between calls has no meaning.
pub struct AttentionBuffers {
    /// `[head_dim, QUERIES]`: the block's queries, scaled.
    pub(super) query: Aligned,
    /// `[head_dim, QUERIES]`: gradients of the block's outputs.
    pub(super) d_out: Aligned,
    /// `[head_dim, QUERIES]`: the sums over keys of the block's outputs, or of its queries' gradients.
    pub(super) accumulator: Aligned,
    /// `[QUERIES, head_dim up to whole registers]`: the accumulator's transpose.
    pub(super) rows: Aligned,
    /// `[KEYS, QUERIES]`: scores, then probabilities.
    pub(super) scores: Aligned,
    /// `[KEYS, QUERIES]`: gradients of probabilities, then of scores.
    pub(super) d_scores: Aligned,
}

impl AttentionBuffers {
    /// Bytes of a set of buffers.
    pub const BYTES: usize = (4 * MAX_HEAD_DIM + 2 * KEYS) * QUERIES * size_of::<f32>();

    /// Allocates the buffers.
    pub fn new() -> Self {
        let head = || Aligned::new(MAX_HEAD_DIM * QUERIES);
        let tile = || Aligned::new(KEYS * QUERIES);
        Self { query: head(), d_out: head(), accumulator: head(), rows: head(), scores: tile(), d_scores: tile() }
    }
}

impl Default for AttentionBuffers {
    fn default() -> Self {
        Self::new()
    }
}
