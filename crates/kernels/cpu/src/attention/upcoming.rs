//! Rows that a pass reads and writes next. Rows of a head are a token apart, which no processor foresees. They come
//! from memory or from another core's cache, so they are prefetched while tiles multiply rows in cache.

use device::Element;

use super::query_block::KeyTile;
use super::{AttentionShape, KEYS, QUERIES};
use crate::gemm::ahead::Ahead;
use crate::view::MatRef;

/// A block of queries of one head, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockIndex {
    pub sequence: usize,
    pub head: usize,
    /// Of the block's first query in the sequence.
    pub position: usize,
}

impl BlockIndex {
    /// All blocks, in the order in which passes take them.
    pub fn all(shape: AttentionShape) -> impl Iterator<Item = BlockIndex> {
        let positions = move || (0..shape.sequence_length).step_by(QUERIES);
        (0..shape.sequences).flat_map(move |sequence| {
            (0..shape.heads)
                .flat_map(move |head| positions().map(move |position| BlockIndex { sequence, head, position }))
        })
    }

    /// The sequence and the head of the keys that the block's queries see.
    pub fn key_head(self, shape: AttentionShape) -> (usize, usize) {
        (self.sequence, self.head * shape.kv_heads / shape.heads)
    }

    /// The block's rows of `matrix[tokens, heads * width]`.
    pub fn rows<'a, E: Element>(self, shape: AttentionShape, matrix: MatRef<'a, E>, width: usize) -> MatRef<'a, E> {
        let queries = QUERIES.min(shape.sequence_length - self.position);
        matrix.block(self.sequence * shape.sequence_length + self.position, queries, self.head * width, width)
    }
}

/// How far a head's keys and values have been asked for.
pub(super) struct KeysAhead<'a, E> {
    shape: AttentionShape,
    /// Keys and values `[sequences * keys, kv_heads * head_dim]`.
    matrices: [MatRef<'a, E>; 2],
    /// Per sequence.
    keys: usize,
    key_head: Option<(usize, usize)>,
    until: usize,
}

impl<'a, E: Element> KeysAhead<'a, E> {
    /// Nothing has been asked for; there are `keys` keys per sequence.
    pub fn new(shape: AttentionShape, keys: usize, matrices: [MatRef<'a, E>; 2]) -> Self {
        Self { shape, matrices, keys, key_head: None, until: 0 }
    }

    /// Asks for what the block `next` begins with, if these are not the keys that the pass is at.
    pub fn begin(&mut self, next: BlockIndex, ahead: &mut Ahead) {
        let key_head = next.key_head(self.shape);
        if self.key_head != Some(key_head) {
            (self.key_head, self.until) = (Some(key_head), 0);
            self.ask(KEYS + QUERIES, ahead);
        }
    }

    /// Prefetches the keys after `tile`, each once.
    pub fn follow(&mut self, index: BlockIndex, tile: &KeyTile, ahead: &mut Ahead) {
        // Where the next head has been begun, this one is complete.
        if self.key_head == Some(index.key_head(self.shape)) {
            self.until = self.until.max(tile.keys.start);
            self.ask(tile.keys.end + KEYS, ahead);
        }
    }

    fn ask(&mut self, until: usize, ahead: &mut Ahead) {
        let (Some((sequence, head)), until) = (self.key_head, until.min(self.keys)) else { return };
        if until > self.until {
            let (first, count, head_dim) = (sequence * self.keys + self.until, until - self.until, self.shape.head_dim);
            for matrix in &self.matrices {
                ahead.add(matrix.block(first, count, head * head_dim, head_dim));
            }
            self.until = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attention, AttentionBuffers, Backward, Forward, attention_backward, attention_forward};
    use super::*;
    use crate::instruction_set::InstructionSet;
    use crate::meter::Meter;
    use crate::view::MatMut;

    /// Blocks that see few keys multiply too little to ask for all that the next block needs: what is left must not
    /// pile up.
    #[test]
    fn no_more_waits_than_one_block_needs() {
        const TOKENS: usize = 1024;
        const DOCUMENT: usize = 32;
        let shape = AttentionShape { sequences: 1, sequence_length: TOKENS, heads: 4, kv_heads: 2, head_dim: 64 };
        let visible: Vec<_> =
            (0..TOKENS).map(|token| [token / DOCUMENT * DOCUMENT, token + 1].map(|at| at as i32)).collect();
        let attention = Attention {
            shape,
            visible: &visible,
            first_key: None,
            scale: 0.125,
            soft_cap: None,
            alibi: None,
            dropout: None,
        };
        let [q, k] = [256, 128].map(|cols| vec![0.5f32; TOKENS * cols]);
        let [mut out, mut dq] = [vec![0.0f32; q.len()], vec![0.0f32; q.len()]];
        let [mut dk, mut dv] = [vec![0.0f32; k.len()], vec![0.0f32; k.len()]];
        let [mut statistics, mut sums] = [vec![0.0f32; TOKENS * 4], vec![0.0f32; 2 * TOKENS * 64]];
        let (mut buffers, set, meter) = (AttentionBuffers::new(), InstructionSet::detect(), Meter::new());
        let [q, k] = [MatRef::dense(&q, TOKENS, 256), MatRef::dense(&k, TOKENS, 128)];
        let (view, log_sum_exp) = (MatMut::dense(&mut out, TOKENS, 256), MatMut::dense(&mut statistics, TOKENS, 4));
        attention_forward(&attention, Forward { q, k, v: k, out: view, log_sum_exp }, &mut buffers, set, &meter);
        let tensors = Backward {
            q,
            k,
            v: k,
            out: MatRef::dense(&out, TOKENS, 256),
            log_sum_exp: MatRef::dense(&statistics, TOKENS, 4),
            dout: q,
            dq: MatMut::dense(&mut dq, TOKENS, 256),
            dk: MatMut::dense(&mut dk, TOKENS, 128),
            dv: MatMut::dense(&mut dv, TOKENS, 128),
            key_sums: MatMut::dense(&mut sums, 2 * TOKENS, 64),
        };
        attention_backward(&attention, tensors, &mut buffers, set, &meter);
        // A block asks for at most nine runs of rows, and for two with each of its tiles, of which there are at most
        // two here.
        let runs = buffers.ahead.capacity();
        assert!(runs <= 16, "room for {runs} runs of rows");
    }
}
