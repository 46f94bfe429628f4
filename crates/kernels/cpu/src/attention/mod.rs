//! Softmax attention that never writes the S x S matrix of scores to memory, and its gradient.
//!
//! A query sees one interval of keys of its own sequence. For a query q with scores `s[k] = scale q . k` over its
//! visible keys, to which ALiBi adds `slope (k - last visible key)`, `p[k] = exp(s[k] - log_sum_exp)`, and with dropout
//! `z[k] = 1 / (1 - probability)` or 0, `out = sum p[k] z[k] v[k]`. A soft cap makes `cap tanh(s[k] / cap)` of a score
//! before its bias, and multiplies its gradient by `1 - tanh(s[k] / cap)^2`. Gradients, with `delta = dout . out`
//! (equal to `sum p[k] z[k] (dout . v[k])`): `ds[k] = p[k] (z[k] (dout . v[k]) - delta)`, `dq = scale sum ds[k] k`, `dk
//! += scale ds[k] q`, `dv += p[k] z[k] dout`. After T. Dao et al., "FlashAttention" (2022) and T. Dao,
//! "FlashAttention-2" (2023).
//!
//! # Structure
//! Blocks of [`QUERIES`] queries meet tiles of [`KEYS`] keys. Scores are transposed, `[key, query]`: a vector register
//! holds one key's scores of sixteen queries, so the maximum and the sum over keys need no reduction across lanes, and
//! keys and values are multiplied where they are, or widened tile by tile where they are stored narrow; only a block's
//! queries are transposed, once. Outputs and gradients of queries are summed in rows, probabilities and gradients of
//! scores being read by columns. Products in AMX order read packed keys and values, as rows and as columns.
//!
//! Rows of a head are a token apart, 4 cache lines of 72 in a model of 384 channels: processors do not foresee them.
//! Operands of the next block are prefetched between tiles ([`upcoming`]); those of a call's first block, all at once
//! before it.
//!
//! # Numerics
//! The bits of a query's output depend on its sequence, its own interval and its position alone: tiles start at
//! multiples of [`KEYS`] from the sequence's start, products are one chain of fused multiply-adds in ascending order
//! per tile, and keys outside of the interval enter as exact zeros. They are the same on every instruction set, for any
//! number of sequences in a call. Gradients of a key sum over query heads, then blocks of queries, both ascending.
//! Values that are not finite may spread to other queries of the tile. Whatever type the tensors are stored in, all
//! sums are in `f32` and each result is rounded once.
//! # Products in AMX order
//! [`attention_forward_pairs`] and [`attention_backward_pairs`] multiply bf16 as [`crate::gemm::pairs`] defines it; the
//! rest is in `f32` as above. Tiles start at multiples of [`KEYS`], so that blocks of 32 keys do, whatever a block of
//! queries sees.
//!
//! 1. `s = scale * pairs(k, q)` over the channels, in both passes: the product is scaled, not the query.
//! 2. Forward, per tile that some query of the block sees: `sums = sums * decay`, rounded, then the product of the
//!    tile's probabilities, after dropout and rounded to bf16, and its values continues from there, 32 keys at a time.
//!    The sum of probabilities is of those that are not rounded.
//! 3. Backward: `pairs(v, dout)` over the channels; probabilities after dropout, and `scale` times the gradients of
//!    scores, are rounded to bf16. The gradient of a query is one product over the sequence's keys, those of a key and
//!    a value are one each over the queries of one head after the other, 32 at a time from the sequence's first on.
//! 4. Keys that a query does not see, and queries that are not there, enter as zeros; where none of 32 is visible they
//!    may be left out, which changes at most the sign of a zero.
//!
//! Several blocks of queries meet a tile before the next is packed; how many changes no bit.
//!
//! In addition to the bounds of products in AMX order there are roundings to bf16, each within 2^-8 of its number: an
//! output is off by that of each probability and of the result, `2^-8 (sum p z |v| + |out|)`, and gradients by `2^-8
//! (sum |ds k| +
//! |dq|)`, `2^-8 (sum |ds q| + |dk|)` and `2^-8 (sum p z |dout| + |dv|)`, to which come those of `delta`, which reads
//! outputs as they are stored (as it does with chained products).

mod backward;
mod buffers;
mod dropout;
mod forward;
mod group;
mod join;
mod key_sums;
mod pairs;
mod query_block;
mod softmax;
mod tensor_cores;
mod upcoming;
mod widened;

pub use backward::{Backward, attention_backward};
pub use buffers::AttentionBuffers;
pub use device::{Alibi, AttentionShape, DropoutKey};
pub use forward::{Forward, attention_forward};
pub use join::JoinAttention;
pub use pairs::{attention_backward_pairs, attention_forward_pairs};
pub use tensor_cores::{BLOCK_KEYS, attention_backward_blocks, attention_forward_blocks};
pub use widened::Operand;

use config::{MAX_DROPOUT_HEADS, MAX_DROPOUT_KEYS};
use device::{AttentionOperands, Element};
use dropout::HeadDropout;
use softmax::Changes;

use crate::view::MatRef;

/// Queries per block: two blocks of lanes. Part of the numerics.
pub const QUERIES: usize = 32;
/// Keys per tile. Part of the numerics.
pub const KEYS: usize = 64;
/// The widest head for which there are buffers: the widest that a run may have.
pub const MAX_HEAD_DIM: usize = config::MAX_HEAD_DIM;

/// Settings of both passes of an attention, next to their tensors.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Sizes.
    pub shape: AttentionShape,
    /// Per token of the call, the interval `[first, last)` of keys of its own sequence that it sees (`0..S`, or
    /// `0..keys` where there are more keys than queries). An empty interval gives an output of zero, a log-sum-exp of
    /// minus infinity and gradients of zero.
    pub visible: &'a [[i32; 2]],
    /// Place in the sequence of the first key, where these are some keys of it; a multiple of 4 with dropout. Intervals
    /// are places, too, and biases count from their ends, wherever the keys end.
    pub first_key: Option<usize>,
    /// Factor of the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Soft cap of the scores, before their biases.
    pub soft_cap: Option<f32>,
    /// Biases of the scores.
    pub alibi: Option<Alibi>,
    /// Dropout of the probabilities: whether (query token, head, key) is kept is a pure function of this key.
    /// `first_channel` is the global index of head 0.
    pub dropout: Option<DropoutKey>,
}

impl<'a> Attention<'a> {
    /// The settings of `operands`; `visible` are the numbers of their tensor.
    pub(crate) fn of(operands: &AttentionOperands, visible: &'a [i32]) -> Self {
        let AttentionOperands { shape, places, scale, soft_cap, alibi, dropout, .. } = *operands;
        let first_key = places.map(|places| places.first_key);
        Self { shape, visible: bytemuck::cast_slice(visible), first_key, scale, soft_cap, alibi, dropout }
    }

    /// Tokens of the call.
    fn tokens(&self) -> usize {
        self.shape.sequences * self.shape.sequence_length
    }

    /// The changes of the local head's scores.
    fn changes(&self, head: usize) -> Changes {
        Changes { soft_cap: self.soft_cap, slope: self.alibi.map(|alibi| alibi.slope(head)) }
    }

    /// Place in the sequence of the first key.
    fn first_place(&self) -> usize {
        self.first_key.unwrap_or(0)
    }

    /// The decisions about the probabilities of the local head.
    fn dropout_of(&self, head: usize) -> Option<HeadDropout> {
        self.dropout.as_ref().map(|dropout| HeadDropout::new(dropout, head, self.first_place()))
    }

    /// Query heads that share one key and value head.
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    /// Keys per sequence. Panics if the sizes contradict each other or exceed what the kernels can say.
    fn keys_of<E: Element>(&self, k: MatRef<'_, E>) -> usize {
        let AttentionShape { heads, kv_heads, head_dim, sequence_length, .. } = self.shape;
        assert!(kv_heads > 0 && heads % kv_heads == 0, "{kv_heads} kv heads do not divide {heads} heads");
        assert!((1..=MAX_HEAD_DIM).contains(&head_dim), "heads of {head_dim} channels; use at most {MAX_HEAD_DIM}");
        let keys = k.rows() / self.shape.sequences.max(1);
        assert!(keys >= sequence_length, "{keys} keys per sequence for {sequence_length} queries");
        let end = self.first_place() + keys;
        assert!(end < 1 << 24, "positions of {end} keys are not exact in f32");
        assert!(self.visible.len() == self.tokens(), "{} intervals for {} tokens", self.visible.len(), self.tokens());
        if let Some(dropout) = &self.dropout {
            let heads = dropout.first_channel as usize + heads;
            assert!(end <= MAX_DROPOUT_KEYS, "dropout does not tell {end} keys apart");
            let grain = dropout::KEYS_PER_BLOCK;
            assert!(
                self.first_place().is_multiple_of(grain),
                "dropout draws {grain} keys at once, not from {} on",
                self.first_place()
            );
            assert!(heads <= MAX_DROPOUT_HEADS, "dropout does not tell {heads} heads apart");
        }
        keys
    }

    /// Panics unless `matrix` is `[tokens, heads * head_dim]`.
    fn assert_heads<E: Element>(&self, name: &str, matrix: MatRef<'_, E>, heads: usize) {
        self.assert_rows(name, matrix, self.tokens(), heads);
    }

    /// Panics unless `matrix` is `[tokens, heads]`.
    fn assert_statistics(&self, matrix: MatRef<'_>) {
        let sizes = (self.tokens(), self.shape.heads);
        assert!((matrix.rows(), matrix.cols()) == sizes, "log_sum_exp is not {sizes:?}");
    }

    /// Panics unless `matrix` is `[rows, heads * head_dim]`.
    fn assert_rows<E: Element>(&self, name: &str, matrix: MatRef<'_, E>, rows: usize, heads: usize) {
        let sizes = (rows, heads * self.shape.head_dim);
        assert!((matrix.rows(), matrix.cols()) == sizes, "{name} is not {sizes:?}");
    }
}
