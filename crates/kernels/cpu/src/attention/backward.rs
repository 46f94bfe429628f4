//! The backward pass: probabilities are recomputed, tile by tile.

use super::buffers::{AttentionBuffers, Blocks, WideBuffers};
use super::forward::load_queries;
use super::key_sums::{KeySums, SHORT, Sum};
use super::query_block::{KeyTile, QueryBlock};
use super::softmax::{DotQueries, InPlace, ScaleQueries, SoftmaxTileBackward};
use super::upcoming::{BlockIndex, KeysAhead};
use super::widened::Operand;
use super::{Attention, QUERIES};
use crate::copy::Copy;
use crate::gemm::Write;
use crate::gemm::ahead::Ahead;
use crate::gemm::in_place::{Left, multiply};
use crate::gemm::kernels::Kernels;
use crate::instruction_set::InstructionSet;
use crate::lanes::{self, Stored};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// The tensors of a backward pass over `T` = sequences x length tokens, `H` heads and `K` key and value heads.
#[derive(Debug)]
pub struct Backward<'a, E = f32> {
    /// Queries `[T, H head_dim]`.
    pub q: MatRef<'a, E>,
    /// Keys `[sequences keys, K head_dim]`, as in the forward pass.
    pub k: MatRef<'a, E>,
    /// Values `[sequences keys, K head_dim]`.
    pub v: MatRef<'a, E>,
    /// Outputs of the forward pass `[T, H head_dim]`.
    pub out: MatRef<'a, E>,
    /// Log-sum-exps of the forward pass `[T, H]`.
    pub log_sum_exp: MatRef<'a>,
    /// Gradient of the outputs `[T, H head_dim]`.
    pub dout: MatRef<'a, E>,
    /// Assigned: gradient of the queries `[T, H head_dim]`.
    pub dq: MatMut<'a, E>,
    /// Assigned: gradient of the keys `[sequences keys, K head_dim]`, summed over each key's query heads in ascending
    /// order.
    pub dk: MatMut<'a, E>,
    /// Assigned: gradient of the values `[sequences keys, K head_dim]`, summed over each value's query heads in
    /// ascending order.
    pub dv: MatMut<'a, E>,
    /// `[2 keys, head_dim]` or more rows, of which these may be written: where the gradients of one sequence's keys and
    /// values of one head are summed before they are stored, if they are stored narrow or the sequence is long.
    pub key_sums: MatMut<'a>,
}

impl<E: Stored> Backward<'_, E> {
    /// Keys per sequence. Panics if the shapes do not fit together.
    pub(super) fn keys_of(&self, attention: &Attention<'_>) -> usize {
        let shape = attention.shape;
        let keys = attention.keys_of(self.k);
        for (name, matrix) in [("q", self.q), ("out", self.out), ("dout", self.dout), ("dq", self.dq.as_ref())] {
            attention.assert_heads(name, matrix, shape.heads);
        }
        for (name, matrix) in [("k", self.k), ("v", self.v), ("dk", self.dk.as_ref()), ("dv", self.dv.as_ref())] {
            attention.assert_rows(name, matrix, shape.sequences * keys, shape.kv_heads);
        }
        attention.assert_statistics(self.log_sum_exp);
        let sums = (self.key_sums.rows(), self.key_sums.cols());
        let needed = (2 * keys, shape.head_dim);
        assert!(sums.0 >= needed.0 && sums.1 == needed.1, "key_sums is {sums:?}, not [2 keys, head_dim] = {needed:?}");
        keys
    }

    /// Inputs of a block's probabilities and of their gradients, with its output gradients and its outputs transposed
    /// into two rooms.
    pub(super) fn rows_of(
        &self,
        block: &QueryBlock,
        (head, head_dim): (usize, usize),
        (d_out, out): (&mut [f32], &mut [f32]),
        instruction_set: InstructionSet,
    ) -> Rows {
        let kernels = Kernels::of(instruction_set);
        load_queries(kernels, block.rows(self.dout, head, head_dim), d_out);
        load_queries(kernels, block.rows(self.out, head, head_dim), out);
        let (a, b) = (&d_out.as_chunks().0[..head_dim], &out.as_chunks().0[..head_dim]);
        let delta = lanes::run(instruction_set, DotQueries { a, b });
        let mut log_sum_exp = [0.0; QUERIES];
        for (query, value) in log_sum_exp.iter_mut().enumerate().take(block.queries) {
            *value = self.log_sum_exp.row(block.token + query)[head];
        }
        Rows { log_sum_exp, delta }
    }
}

/// Gradients of attention's queries, keys and values, all assigned. Counts `5 head_dim` multiply-adds per visible pair
/// and head.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn attention_backward<E: Operand>(
    attention: &Attention<'_>,
    mut tensors: Backward<'_, E>,
    buffers: &mut AttentionBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (keys, shape) = (tensors.keys_of(attention), attention.shape);
    let AttentionBuffers { blocks, wide, ahead } = buffers;
    let keys_ahead = KeysAhead::new(shape, keys, [tensors.k, tensors.v]);
    let kernels = Kernels::of(instruction_set);
    let mut pass = Pass { attention, keys, blocks, ahead, keys_ahead, kernels, instruction_set, meter };
    let mut blocks = BlockIndex::all(shape).peekable();
    if let Some(&first) = blocks.peek() {
        pass.ask_for(first, &tensors);
        pass.ahead.ask_for_all();
    }
    while let Some(first) = blocks.peek().copied() {
        let key_head = first.key_head(shape);
        let mut sums = KeySums::new(shape, keys, key_head);
        while let Some(index) = blocks.next_if(|index| index.key_head(shape) == key_head) {
            pass.block(index, blocks.peek().copied(), &mut tensors, &mut sums, wide);
        }
        sums.finish(&mut tensors, instruction_set);
    }
}

struct Pass<'a, E> {
    attention: &'a Attention<'a>,
    /// Per sequence.
    keys: usize,
    blocks: &'a mut Blocks,
    ahead: &'a mut Ahead,
    keys_ahead: KeysAhead<'a, E>,
    kernels: &'static Kernels,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

/// Per query of a block: what its probabilities and their gradients need.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub log_sum_exp: [f32; QUERIES],
    /// `dout . out`
    pub delta: [f32; QUERIES],
}

impl Rows {
    /// Of no query.
    pub const NONE: Rows = Rows { log_sum_exp: [0.0; QUERIES], delta: [0.0; QUERIES] };
}

impl<E: Operand> Pass<'_, E> {
    /// Asks for the rows that the block at `next` reads first, for those that it writes, and for the sums of the keys
    /// next to its queries.
    fn ask_for(&mut self, next: BlockIndex, tensors: &Backward<'_, E>) {
        let shape = self.attention.shape;
        for matrix in [tensors.q, tensors.dout, tensors.out] {
            self.ahead.add(next.rows(shape, matrix, shape.head_dim));
        }
        self.ahead.add(next.rows(shape, tensors.log_sum_exp, 1));
        self.keys_ahead.begin(next, self.ahead);
        let (_, kv_head) = next.key_head(shape);
        if shape.sequence_length <= SHORT && self.keys == shape.sequence_length {
            for matrix in [tensors.dk.as_ref(), tensors.dv.as_ref()] {
                self.ahead.add(BlockIndex { head: kv_head, ..next }.rows(shape, matrix, shape.head_dim));
            }
        }
        self.ahead.add(next.rows(shape, tensors.dq.as_ref(), shape.head_dim));
    }

    /// All keys for one block of queries of one head.
    fn block(
        &mut self,
        index: BlockIndex,
        next: Option<BlockIndex>,
        tensors: &mut Backward<'_, E>,
        sums: &mut KeySums,
        wide: &mut WideBuffers,
    ) {
        let BlockIndex { sequence, head, position } = index;
        let block = &QueryBlock::new(self.attention, self.keys, sequence, position);
        let head_dim = self.attention.shape.head_dim;
        let (kv_head, set) = (head / self.attention.group(), self.instruction_set);
        let rows = self.load(block, head, tensors);
        let query = E::widened(block.rows(tensors.q, head, head_dim), &mut wide.query, set);
        let d_out = E::widened(block.rows(tensors.dout, head, head_dim), &mut wide.d_out, set);
        let mut write = Write::Assign;
        for tile in block.tiles() {
            self.keys_ahead.follow(index, &tile, self.ahead);
            if write == Write::Assign
                && let Some(next) = next
            {
                self.ask_for(next, tensors);
            }
            let key = block.key_rows(&tile, tensors.k, kv_head, head_dim);
            let value = block.key_rows(&tile, tensors.v, kv_head, head_dim);
            let (key, value) = (E::widened(key, &mut wide.key, set), E::widened(value, &mut wide.value, set));
            self.tile_scores(block, &tile, head, &rows, (key, value));
            sums.clear(tile.keys.end, tensors);
            self.tile_gradients(&tile, (query, d_out, key), write, tensors, sums);
            write = Write::Accumulate;
        }
        // Lines that were not prefetched in time are read at once.
        self.ahead.clear();
        let of_queries = &mut self.blocks.accumulator[..block.queries * head_dim];
        if write == Write::Assign {
            of_queries.fill(0.0);
        }
        let from = MatRef::dense(of_queries, block.queries, head_dim);
        let to = tensors.dq.block(block.token, block.queries, head * head_dim, head_dim);
        lanes::run(set, Copy { from, to });
    }

    /// Transposes the block's queries and output gradients.
    fn load(&mut self, block: &QueryBlock, head: usize, tensors: &Backward<'_, E>) -> Rows {
        let Blocks { query, d_out, accumulator, .. } = &mut *self.blocks;
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        load_queries(kernels, block.rows(tensors.q, head, head_dim), query);
        let rows = &mut query.as_chunks_mut().0[..head_dim];
        lanes::run(self.instruction_set, ScaleQueries { rows, factors: &[self.attention.scale; QUERIES] });
        tensors.rows_of(block, (head, head_dim), (d_out, accumulator), self.instruction_set)
    }

    /// Probabilities of a tile and the gradients of its scores, into the buffers.
    fn tile_scores(
        &mut self,
        block: &QueryBlock,
        tile: &KeyTile,
        head: usize,
        rows: &Rows,
        (key, value): (MatRef<'_>, MatRef<'_>),
    ) {
        let Blocks { query, d_out, scores, d_scores, .. } = &mut *self.blocks;
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        let (keys, width) = (tile.keys.len(), block.width());
        for (a, queries, target) in [(key, query, &mut *scores), (value, d_out, &mut *d_scores)] {
            let b = MatRef::new(queries, head_dim, width, QUERIES);
            multiply(
                kernels,
                Left::RowMajor,
                a,
                b,
                MatMut::new(target, keys, width, QUERIES),
                Write::Assign,
                self.ahead,
            );
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
            changes: self.attention.changes(head),
            dropout: self.attention.dropout_of(head),
            probabilities: InPlace,
            gradients: InPlace,
        };
        lanes::run(self.instruction_set, kernel);
    }

    /// Adds a tile's terms to the sums of its keys and values and to the gradients of the block's queries.
    fn tile_gradients(
        &mut self,
        tile: &KeyTile,
        (query, d_out, key): (MatRef<'_>, MatRef<'_>, MatRef<'_>),
        write: Write,
        tensors: &mut Backward<'_, E>,
        sums: &KeySums,
    ) {
        let Blocks { accumulator, scores, d_scores, .. } = &mut *self.blocks;
        let head_dim = self.attention.shape.head_dim;
        let (kernels, keys, queries) = (self.kernels, tile.keys.len(), query.rows());
        for (sum, tile_rows, b) in [(Sum::Values, &*scores, d_out), (Sum::Keys, &*d_scores, query)] {
            let a = MatRef::new(tile_rows, keys, queries, QUERIES);
            let mut rows = sums.rows(sum, tensors);
            let c = rows.block(tile.keys.start, keys, 0, head_dim);
            multiply(kernels, Left::RowMajor, a, b, c, Write::Accumulate, self.ahead);
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
        }
        let a = MatRef::new(d_scores, keys, queries, QUERIES);
        let c = MatMut::dense(&mut accumulator[..queries * head_dim], queries, head_dim);
        multiply(kernels, Left::StepMajor, a, key, c, write, self.ahead);
        self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
    }
}
