//! Memory for the blocks of one query block and one tile of keys.

use super::{KEYS, MAX_HEAD_DIM, QUERIES};
use crate::aligned::Aligned;
use crate::gemm::ahead::Ahead;

/// Room for the blocks that attention works on, of constant size ([`AttentionBuffers::BYTES`]). Allocated once per
/// thread; what it holds between calls has no meaning.
pub struct AttentionBuffers {
    pub(super) blocks: Blocks,
    pub(super) wide: WideBuffers,
    pub(super) ahead: Ahead,
}

/// Results of the passes.
pub(super) struct Blocks {
    /// `[head_dim, QUERIES]`: the block's queries, scaled.
    pub query: Aligned,
    /// `[head_dim, QUERIES]`: gradients of the block's outputs.
    pub d_out: Aligned,
    /// `[queries, head_dim]`: the sums over keys of the block's outputs, or of its queries' gradients.
    pub accumulator: Aligned,
    /// `[KEYS, QUERIES]`: scores, then probabilities.
    pub scores: Aligned,
    /// `[KEYS, QUERIES]`: gradients of probabilities, then of scores.
    pub d_scores: Aligned,
}

/// Rows that are stored narrow, in `f32`.
pub(super) struct WideBuffers {
    /// `[KEYS, head_dim]`: a tile's keys.
    pub key: Aligned,
    /// `[KEYS, head_dim]`: a tile's values.
    pub value: Aligned,
    /// `[QUERIES, head_dim]`: the block's queries.
    pub query: Aligned,
    /// `[QUERIES, head_dim]`: gradients of the block's outputs.
    pub d_out: Aligned,
}

impl AttentionBuffers {
    /// Bytes of all of it.
    pub const BYTES: usize = ((5 * MAX_HEAD_DIM + 2 * KEYS) * QUERIES + 2 * MAX_HEAD_DIM * KEYS) * size_of::<f32>();

    /// Allocates it.
    pub fn new() -> Self {
        let head = || Aligned::new(MAX_HEAD_DIM * QUERIES);
        let tile = || Aligned::new(KEYS * QUERIES);
        let keys = || Aligned::new(MAX_HEAD_DIM * KEYS);
        Self {
            blocks: Blocks { query: head(), d_out: head(), accumulator: head(), scores: tile(), d_scores: tile() },
            wide: WideBuffers { key: keys(), value: keys(), query: head(), d_out: head() },
            ahead: Ahead::default(),
        }
    }
}

impl Default for AttentionBuffers {
    fn default() -> Self {
        Self::new()
    }
}
