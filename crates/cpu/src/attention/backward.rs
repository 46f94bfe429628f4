//! The backward pass: probabilities are computed again, tile by tile.

use super::buffers::AttentionBuffers;
use super::dropout::HeadDropout;
use super::forward::{load_queries, store_queries};
use super::query_block::{KeyTile, QueryBlock};
use super::softmax::{DotQueries, ScaleQueries, SoftmaxTileBackward};
use super::{Attention, QUERIES};
use crate::gemm::Write;
use crate::gemm::in_place::{Left, multiply};
use crate::gemm::kernels::Kernels;
use crate::instruction_set::InstructionSet;
use crate::lanes;
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// The tensors of a backward pass over `T` = sequences x length tokens, `H` heads and `K` key and value heads.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Queries `[T, H head_dim]`.
    pub q: MatRef<'a>,
    /// Keys `[T, K head_dim]`.
    pub k: MatRef<'a>,
    /// Values `[T, K head_dim]`.
    pub v: MatRef<'a>,
    /// Outputs of the forward pass `[T, H head_dim]`.
    pub out: MatRef<'a>,
    /// Log-sum-exps of the forward pass `[T, H]`.
    pub log_sum_exp: &'a [f32],
    /// Gradient of the outputs `[T, H head_dim]`.
    pub dout: MatRef<'a>,
    /// Assigned: gradient of the queries `[T, H head_dim]`.
    pub dq: MatMut<'a>,
    /// Assigned: gradient of the keys `[T, K head_dim]`, summed over each key's query heads in ascending order.
    pub dk: MatMut<'a>,
    /// Assigned: gradient of the values `[T, K head_dim]`, summed over each value's query heads in ascending order.
    pub dv: MatMut<'a>,
}

/// Gradients of attention's queries, keys and values, all assigned. Counts `5 head_dim` multiply-adds per visible pair and
/// head.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn attention_backward(
    attention: &Attention<'_>,
    mut tensors: Backward<'_>,
    buffers: &mut AttentionBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let shape = attention.shape;
    attention.assert_valid();
    for (name, matrix) in [("q", tensors.q), ("out", tensors.out), ("dout", tensors.dout), ("dq", tensors.dq.as_ref())]
    {
        attention.assert_heads(name, matrix, shape.heads);
    }
    for (name, matrix) in [("k", tensors.k), ("v", tensors.v), ("dk", tensors.dk.as_ref()), ("dv", tensors.dv.as_ref())]
    {
        attention.assert_heads(name, matrix, shape.kv_heads);
    }
    assert!(tensors.log_sum_exp.len() == attention.tokens() * shape.heads, "log_sum_exp is not [tokens, heads]");
    for token in 0..attention.tokens() {
        tensors.dk.row_mut(token).fill(0.0);
        tensors.dv.row_mut(token).fill(0.0);
    }
    let mut pass = Pass { attention, buffers, kernels: Kernels::of(instruction_set), instruction_set, meter };
    for sequence in 0..shape.sequences {
        for head in 0..shape.heads {
            for position in (0..shape.sequence_length).step_by(QUERIES) {
                pass.block(&QueryBlock::new(attention, shape.sequence_length, sequence, position), head, &mut tensors);
            }
        }
    }
}

struct Pass<'a> {
    attention: &'a Attention<'a>,
    buffers: &'a mut AttentionBuffers,
    kernels: &'static Kernels,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

/// Per query of a block: what its probabilities and their gradients need.
struct Rows {
    log_sum_exp: [f32; QUERIES],
    /// `dout . out`
    delta: [f32; QUERIES],
}

impl Pass<'_> {
    /// All keys for one block of queries of one head.
    fn block(&mut self, block: &QueryBlock, head: usize, tensors: &mut Backward<'_>) {
        let head_dim = self.attention.shape.head_dim;
        let rows = self.load(block, head, tensors);
        let mut write = Write::Assign;
        for tile in block.tiles() {
            self.tile_scores(block, &tile, head, &rows, tensors);
            self.tile_gradients(block, &tile, head, write, tensors);
            write = Write::Accumulate;
        }
        let AttentionBuffers { accumulator, rows, .. } = &mut *self.buffers;
        if write == Write::Assign {
            accumulator[..head_dim * QUERIES].fill(0.0);
        }
        store_queries(
            self.kernels,
            accumulator,
            rows,
            tensors.dq.block(block.token, block.queries, head * head_dim, head_dim),
        );
    }

    /// Transposes the block's queries and output gradients.
    fn load(&mut self, block: &QueryBlock, head: usize, tensors: &Backward<'_>) -> Rows {
        let AttentionBuffers { query, d_out, accumulator, .. } = &mut *self.buffers;
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        load_queries(kernels, block.rows(tensors.q, head, head_dim), query);
        let rows = &mut query.as_chunks_mut().0[..head_dim];
        lanes::run(self.instruction_set, ScaleQueries { rows, factors: &[self.attention.scale; QUERIES] });
        load_queries(kernels, block.rows(tensors.dout, head, head_dim), d_out);
        load_queries(kernels, block.rows(tensors.out, head, head_dim), accumulator);
        let (a, b) = (&d_out.as_chunks().0[..head_dim], &accumulator.as_chunks().0[..head_dim]);
        let delta = lanes::run(self.instruction_set, DotQueries { a, b });
        let mut log_sum_exp = [0.0; QUERIES];
        for (query, value) in log_sum_exp.iter_mut().enumerate().take(block.queries) {
            *value = tensors.log_sum_exp[(block.token + query) * self.attention.shape.heads + head];
        }
        Rows { log_sum_exp, delta }
    }

    /// Probabilities of a tile and the gradients of its scores, into the buffers.
    fn tile_scores(&mut self, block: &QueryBlock, tile: &KeyTile, head: usize, rows: &Rows, tensors: &Backward<'_>) {
        let AttentionBuffers { query, d_out, scores, d_scores, .. } = &mut *self.buffers;
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        let kv_head = head / self.attention.group();
        let (keys, width) = (tile.keys.len(), block.width());
        for (matrix, queries, target) in [(tensors.k, query, &mut *scores), (tensors.v, d_out, &mut *d_scores)] {
            let a = block.key_rows(tile, matrix, kv_head, head_dim);
            let b = MatRef::new(queries, head_dim, width, QUERIES);
            multiply(kernels, Left::RowMajor, a, b, MatMut::new(target, keys, width, QUERIES), Write::Assign);
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
        }
        let kernel = SoftmaxTileBackward {
            block,
            tile,
            scores: &mut scores.as_chunks_mut().0[..keys],
            d_scores: &mut d_scores.as_chunks_mut().0[..keys],
            log_sum_exp: &rows.log_sum_exp,
            delta: &rows.delta,
            scale: self.attention.scale,
            dropout: self.attention.dropout.as_ref().map(|dropout| HeadDropout::new(dropout, head)),
        };
        lanes::run(self.instruction_set, kernel);
    }

    /// What a tile adds to the gradients of its values, its keys and the block's queries.
    fn tile_gradients(
        &mut self,
        block: &QueryBlock,
        tile: &KeyTile,
        head: usize,
        write: Write,
        tensors: &mut Backward<'_>,
    ) {
        let AttentionBuffers { accumulator, scores, d_scores, .. } = &mut *self.buffers;
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        let kv_head = head / self.attention.group();
        let (keys, queries, width) = (tile.keys.len(), block.queries, block.width());
        let first = block.first_key + tile.keys.start;
        for (tile_rows, rows, gradient) in
            [(&*scores, tensors.dout, &mut tensors.dv), (&*d_scores, tensors.q, &mut tensors.dk)]
        {
            let a = MatRef::new(tile_rows, keys, queries, QUERIES);
            let b = block.rows(rows, head, head_dim);
            let c = gradient.block(first, keys, kv_head * head_dim, head_dim);
            multiply(kernels, Left::RowMajor, a, b, c, Write::Accumulate);
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
        }
        let a = block.key_rows(tile, tensors.k, kv_head, head_dim);
        let b = MatRef::new(d_scores, keys, width, QUERIES);
        multiply(kernels, Left::StepMajor, a, b, MatMut::new(accumulator, head_dim, width, QUERIES), write);
        self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
    }
}
