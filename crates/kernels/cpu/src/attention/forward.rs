//! The forward pass.

use device::Element;

use super::buffers::{AttentionBuffers, Blocks, WideBuffers};
use super::query_block::QueryBlock;
use super::softmax::{Finish, InPlace, Running, ScaleQueries, ScaleRows, ScaledRows, SoftmaxTile};
use super::upcoming::{BlockIndex, KeysAhead};
use super::widened::Operand;
use super::{Attention, QUERIES};
use crate::gemm::Write;
use crate::gemm::ahead::Ahead;
use crate::gemm::in_place::{Left, multiply, transpose};
use crate::gemm::kernels::Kernels;
use crate::instruction_set::InstructionSet;
use crate::lanes::{self, Stored};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// The tensors of a forward pass over `T` = sequences x length tokens, `H` heads and `K` key and value heads. There are
/// at least as many keys as tokens, `keys` per sequence: queries that continue a sequence see the keys before them,
/// too.
#[derive(Debug)]
pub struct Forward<'a, E = f32> {
    /// Queries `[T, H head_dim]`.
    pub q: MatRef<'a, E>,
    /// Keys `[sequences keys, K head_dim]`.
    pub k: MatRef<'a, E>,
    /// Values `[sequences keys, K head_dim]`.
    pub v: MatRef<'a, E>,
    /// Assigned: outputs `[T, H head_dim]`.
    pub out: MatMut<'a, E>,
    /// Assigned: per token and head the logarithm of the sum of `exp(score)`, `[T, H]`.
    pub log_sum_exp: MatMut<'a>,
}

impl<E: Stored> Forward<'_, E> {
    /// Keys per sequence. Panics if the shapes do not fit together.
    pub(super) fn keys_of(&self, attention: &Attention<'_>) -> usize {
        let shape = attention.shape;
        let keys = attention.keys_of(self.k);
        attention.assert_heads("q", self.q, shape.heads);
        attention.assert_rows("k", self.k, shape.sequences * keys, shape.kv_heads);
        attention.assert_rows("v", self.v, shape.sequences * keys, shape.kv_heads);
        attention.assert_heads("out", self.out.as_ref(), shape.heads);
        attention.assert_statistics(self.log_sum_exp.as_ref());
        keys
    }

    /// Ends a block's running softmax, whose `decay` becomes the factor that makes outputs of its sums, and writes its
    /// log-sum-exps.
    pub(super) fn end(
        &mut self,
        attention: &Attention<'_>,
        block: &QueryBlock,
        head: usize,
        running: &mut Running,
        instruction_set: InstructionSet,
    ) {
        let keep_scale = attention.dropout_of(head).map_or(1.0, |dropout| dropout.scale);
        lanes::run(instruction_set, Finish { running, keep_scale });
        for query in 0..block.queries {
            self.log_sum_exp.row_mut(block.token + query)[head] = running.max[query];
        }
    }
}

/// Attention's outputs and log-sum-exps, both assigned. Counts `2 head_dim` multiply-adds per visible pair and head.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn attention_forward<E: Operand>(
    attention: &Attention<'_>,
    mut tensors: Forward<'_, E>,
    buffers: &mut AttentionBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let keys = tensors.keys_of(attention);
    let shape = attention.shape;
    let AttentionBuffers { blocks, wide, ahead } = buffers;
    let keys_ahead = KeysAhead::new(shape, keys, [tensors.k, tensors.v]);
    let kernels = Kernels::of(instruction_set);
    let mut pass = Pass { attention, keys, blocks, ahead, keys_ahead, kernels, instruction_set, meter };
    let mut blocks = BlockIndex::all(shape).peekable();
    if let Some(&first) = blocks.peek() {
        pass.ask_for(first, &tensors);
        pass.ahead.ask_for_all();
    }
    while let Some(index) = blocks.next() {
        pass.block(index, blocks.peek().copied(), &mut tensors, wide);
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

impl<E: Operand> Pass<'_, E> {
    /// Asks for the rows that the block at `next` reads first and for those that it writes.
    fn ask_for(&mut self, next: BlockIndex, tensors: &Forward<'_, E>) {
        let shape = self.attention.shape;
        self.ahead.add(next.rows(shape, tensors.q, shape.head_dim));
        self.keys_ahead.begin(next, self.ahead);
        self.ahead.add(next.rows(shape, tensors.out.as_ref(), shape.head_dim));
        self.ahead.add(next.rows(shape, tensors.log_sum_exp.as_ref(), 1));
    }

    /// All keys for one block of queries of one head.
    fn block(
        &mut self,
        index: BlockIndex,
        next: Option<BlockIndex>,
        tensors: &mut Forward<'_, E>,
        wide: &mut WideBuffers,
    ) {
        let BlockIndex { sequence, head, position } = index;
        let block = &QueryBlock::new(self.attention, self.keys, sequence, position);
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        let kv_head = head / self.attention.group();
        let dropout = self.attention.dropout_of(head);
        let changes = self.attention.changes(head);
        let query = &mut self.blocks.query;
        load_queries(kernels, block.rows(tensors.q, head, head_dim), query);
        let rows = &mut query.as_chunks_mut().0[..head_dim];
        lanes::run(self.instruction_set, ScaleQueries { rows, factors: &[self.attention.scale; QUERIES] });

        let mut running = Running::new();
        let width = block.width();
        let mut write = Write::Assign;
        for tile in block.tiles() {
            let keys = tile.keys.len();
            self.keys_ahead.follow(index, &tile, self.ahead);
            if write == Write::Assign
                && let Some(next) = next
            {
                self.ask_for(next, tensors);
            }
            let Blocks { query, accumulator, scores, .. } = &mut *self.blocks;
            let key = block.key_rows(&tile, tensors.k, kv_head, head_dim);
            let key = E::widened(key, &mut wide.key, self.instruction_set);
            let columns = MatRef::new(query, head_dim, width, QUERIES);
            let target = MatMut::new(scores, keys, width, QUERIES);
            multiply(kernels, Left::RowMajor, key, columns, target, Write::Assign, self.ahead);
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);

            let rows = &mut scores.as_chunks_mut().0[..keys];
            let (running, scale, probabilities) = (&mut running, self.attention.scale, InPlace);
            let softmax =
                SoftmaxTile { block, tile: &tile, scores: rows, running, scale, changes, dropout, probabilities };
            lanes::run(self.instruction_set, softmax);
            let mut sums = MatMut::dense(&mut accumulator[..block.queries * head_dim], block.queries, head_dim);
            if write == Write::Accumulate {
                let rows = sums.block(0, block.queries, 0, head_dim);
                lanes::run(self.instruction_set, ScaleRows { rows, factors: &running.decay });
            }

            let value = block.key_rows(&tile, tensors.v, kv_head, head_dim);
            let value = E::widened(value, &mut wide.value, self.instruction_set);
            let probabilities = MatRef::new(scores, keys, block.queries, QUERIES);
            multiply(kernels, Left::StepMajor, probabilities, value, sums, write, self.ahead);
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
            write = Write::Accumulate;
        }
        // Lines that were not prefetched in time are read at once.
        self.ahead.clear();
        if write == Write::Assign {
            self.blocks.accumulator[..block.queries * head_dim].fill(0.0);
        }
        tensors.end(self.attention, block, head, &mut running, self.instruction_set);
        let from = MatRef::dense(&self.blocks.accumulator[..block.queries * head_dim], block.queries, head_dim);
        let to = tensors.out.block(block.token, block.queries, head * head_dim, head_dim);
        lanes::run(self.instruction_set, ScaledRows { from, factors: &running.decay, to });
    }
}

/// Transposes a block's rows `[queries, head_dim]` into `[head_dim, QUERIES]`; lanes without a query become zero.
pub(super) fn load_queries<E: Element>(kernels: &Kernels, rows: MatRef<'_, E>, target: &mut [f32]) {
    if rows.rows() < QUERIES {
        target[..rows.cols() * QUERIES].fill(0.0);
    }
    transpose(kernels, rows, target, QUERIES);
}
