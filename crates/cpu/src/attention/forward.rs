//! The forward pass.

use device::Element;

use super::buffers::{AttentionBuffers, Blocks, WideRooms};
use super::dropout::HeadDropout;
use super::query_block::QueryBlock;
use super::softmax::{Finish, InPlace, Running, ScaleQueries, SoftmaxTile};
use super::widened::Operand;
use super::{Attention, QUERIES};
use crate::copy::Copy;
use crate::gemm::Write;
use crate::gemm::in_place::{Left, multiply, transpose};
use crate::gemm::kernels::Kernels;
use crate::instruction_set::InstructionSet;
use crate::lanes::{self, Stored};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// The tensors of a forward pass over `T` = sequences x length tokens, `H` heads and `K` key and value heads. There are at least as
/// many keys as tokens, `keys` per sequence: queries that continue a sequence see the keys before them, too.
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
        attention.assert_valid();
        attention.assert_heads("q", self.q, shape.heads);
        let keys = self.k.rows() / shape.sequences.max(1);
        assert!(keys >= shape.sequence_length, "{keys} keys per sequence for {} queries", shape.sequence_length);
        assert!(keys < 1 << 24, "positions of {keys} keys are not exact in f32");
        attention.assert_rows("k", self.k, shape.sequences * keys, shape.kv_heads);
        attention.assert_rows("v", self.v, shape.sequences * keys, shape.kv_heads);
        attention.assert_heads("out", self.out.as_ref(), shape.heads);
        attention.assert_statistics(self.log_sum_exp.as_ref());
        keys
    }

    /// Writes what the sums `[head_dim, QUERIES]` of a block are, once they are divided, by way of `rows`, and its log-sum-exps.
    pub(super) fn finish(
        &mut self,
        attention: &Attention<'_>,
        block: &QueryBlock,
        head: usize,
        (running, sums, rows): (&mut Running, &mut [f32], &mut [f32]),
        instruction_set: InstructionSet,
    ) {
        let head_dim = attention.shape.head_dim;
        let keep_scale = attention.dropout.as_ref().map_or(1.0, |dropout| HeadDropout::new(dropout, head).scale);
        lanes::run(instruction_set, Finish { running, keep_scale });
        let of_channels = &mut sums.as_chunks_mut().0[..head_dim];
        lanes::run(instruction_set, ScaleQueries { rows: of_channels, factors: &running.decay });
        let target = self.out.block(block.token, block.queries, head * head_dim, head_dim);
        store_queries(Kernels::of(instruction_set), instruction_set, sums, rows, target);
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
    let AttentionBuffers { blocks, rooms } = buffers;
    let mut pass = Pass { attention, blocks, kernels: Kernels::of(instruction_set), instruction_set, meter };
    for sequence in 0..shape.sequences {
        for head in 0..shape.heads {
            for position in (0..shape.sequence_length).step_by(QUERIES) {
                pass.block(&QueryBlock::new(attention, keys, sequence, position), head, &mut tensors, rooms);
            }
        }
    }
}

struct Pass<'a> {
    attention: &'a Attention<'a>,
    blocks: &'a mut Blocks,
    kernels: &'static Kernels,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

impl Pass<'_> {
    /// All keys for one block of queries of one head.
    fn block<E: Operand>(
        &mut self,
        block: &QueryBlock,
        head: usize,
        tensors: &mut Forward<'_, E>,
        rooms: &mut WideRooms,
    ) {
        let (kernels, head_dim) = (self.kernels, self.attention.shape.head_dim);
        let kv_head = head / self.attention.group();
        let dropout = self.attention.dropout.as_ref().map(|dropout| HeadDropout::new(dropout, head));
        let slope = self.attention.slope(head);
        let Blocks { query, accumulator, scores, .. } = &mut *self.blocks;
        load_queries(kernels, block.rows(tensors.q, head, head_dim), query);
        let rows = &mut query.as_chunks_mut().0[..head_dim];
        lanes::run(self.instruction_set, ScaleQueries { rows, factors: &[self.attention.scale; QUERIES] });

        let mut running = Running::new();
        let width = block.width();
        let mut write = Write::Assign;
        for tile in block.tiles() {
            let keys = tile.keys.len();
            let key = block.key_rows(&tile, tensors.k, kv_head, head_dim);
            let key = E::widened(key, &mut rooms.key, self.instruction_set);
            let score_view = MatMut::new(scores, keys, width, QUERIES);
            multiply(
                kernels,
                Left::RowMajor,
                key,
                MatRef::new(query, head_dim, width, QUERIES),
                score_view,
                Write::Assign,
            );
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);

            let rows = &mut scores.as_chunks_mut().0[..keys];
            let (running, scale, probabilities) = (&mut running, self.attention.scale, InPlace);
            let softmax =
                SoftmaxTile { block, tile: &tile, scores: rows, running, scale, slope, dropout, probabilities };
            lanes::run(self.instruction_set, softmax);
            if write == Write::Accumulate {
                let rows = &mut accumulator.as_chunks_mut().0[..head_dim];
                lanes::run(self.instruction_set, ScaleQueries { rows, factors: &running.decay });
            }

            let value = block.key_rows(&tile, tensors.v, kv_head, head_dim);
            let value = E::widened(value, &mut rooms.value, self.instruction_set);
            let sums = MatMut::new(accumulator, head_dim, width, QUERIES);
            multiply(kernels, Left::StepMajor, value, MatRef::new(scores, keys, width, QUERIES), sums, write);
            self.meter.add_multiply_adds((tile.pairs * head_dim) as u64);
            write = Write::Accumulate;
        }
        if write == Write::Assign {
            accumulator[..head_dim * QUERIES].fill(0.0);
        }
        let Blocks { accumulator, rows, .. } = &mut *self.blocks;
        let ends = (&mut running, &mut **accumulator, &mut **rows);
        tensors.finish(self.attention, block, head, ends, self.instruction_set);
    }
}

/// Transposes a block's rows `[queries, head_dim]` into `[head_dim, QUERIES]`; lanes without a query become zero.
pub(super) fn load_queries<E: Element>(kernels: &Kernels, rows: MatRef<'_, E>, target: &mut [f32]) {
    if rows.rows() < QUERIES {
        target[..rows.cols() * QUERIES].fill(0.0);
    }
    transpose(kernels, rows, target, QUERIES);
}

/// Transposes `[head_dim, QUERIES]` into a block's rows `[queries, head_dim]`, by way of `rows`, and rounds.
pub(super) fn store_queries<E: Stored>(
    kernels: &Kernels,
    instruction_set: InstructionSet,
    source: &[f32],
    rows: &mut [f32],
    target: MatMut<'_, E>,
) {
    let (queries, head_dim) = (target.rows(), target.cols());
    let stride = head_dim.next_multiple_of(lanes::LANES);
    transpose(kernels, MatRef::new(source, head_dim, queries, QUERIES), rows, stride);
    let from = MatRef::new(rows, queries, head_dim, stride);
    lanes::run(instruction_set, Copy { from, to: target });
}
