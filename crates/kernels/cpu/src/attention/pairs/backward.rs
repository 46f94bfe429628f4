//! The backward pass: probabilities are recomputed, tile by tile.

use std::ops::Range;

use device::Bf16;

use super::workspace::{BackwardWorkspace, Memory, Workspace};
use super::{GROUP, Group, GroupTile, Rounded, RoundedRow, rounded_block, store_queries};
use crate::attention::backward::Rows;
use crate::attention::key_sums::{KeySums, Sum};
use crate::attention::query_block::{KeyTile, QueryBlock};
use crate::attention::softmax::SoftmaxTileBackward;
use crate::attention::{Attention, Backward, QUERIES};
use crate::gemm::PackingBuffers;
use crate::gemm::pairs::small::{Adjacent, Begin, SmallProducts};
use crate::instruction_set::InstructionSet;
use crate::lanes;
use crate::meter::Meter;
use crate::view::MatMut;

/// Gradients of attention's queries, keys and values, all assigned, with products in AMX order. Counts `5 head_dim`
/// multiply-adds per visible pair
/// and head.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn attention_backward_pairs(
    attention: &Attention<'_>,
    mut tensors: Backward<'_, Bf16>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (keys, shape) = (tensors.keys_of(attention), attention.shape);
    let products = SmallProducts::enter(instruction_set);
    let mut memory = Memory::new(&products, packing, shape.head_dim);
    let (workspace, gradients) = (memory.workspace(), memory.backward_workspace());
    let mut pass = Pass { attention, products: &products, workspace, gradients, instruction_set, meter };
    for sequence in 0..shape.sequences {
        for kv_head in 0..shape.kv_heads {
            let mut sums = KeySums::new(shape, keys, (sequence, kv_head));
            for head in kv_head * attention.group()..(kv_head + 1) * attention.group() {
                for position in (0..shape.sequence_length).step_by(GROUP * QUERIES) {
                    let group = Group::new(attention, keys, sequence, position);
                    pass.group(&group, head, &mut tensors, &mut sums);
                }
            }
            sums.finish(&mut tensors, instruction_set);
        }
    }
}

struct Pass<'a> {
    attention: &'a Attention<'a>,
    products: &'a SmallProducts,
    workspace: Workspace<'a>,
    gradients: BackwardWorkspace<'a>,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

impl Pass<'_> {
    /// All keys for one group of queries of one head.
    fn group(&mut self, group: &Group, head: usize, tensors: &mut Backward<'_, Bf16>, sums: &mut KeySums) {
        let head_dim = self.attention.shape.head_dim;
        let rows = self.load(group, head, tensors);
        self.workspace.sums.restart();
        for tile in group.tiles() {
            self.pack(group, &tile, head, tensors);
            for (place, block, of_block) in group.seeing(&tile) {
                self.tile_scores(block, of_block, (place, head), &rows[place], tile.keys.len());
                self.query_gradients(block, of_block, place);
                self.meter.add_multiply_adds((5 * of_block.pairs * head_dim) as u64);
            }
            sums.clear(tile.keys.end, tensors);
            self.key_gradients(group, &tile, sums, tensors);
        }
        for (place, block) in group.blocks() {
            let sums = self.workspace.sums.finished(place);
            let target = tensors.dq.block(block.token, block.queries, head * head_dim, head_dim);
            store_queries(self.instruction_set, sums, self.workspace.rows, target);
        }
    }

    /// Packs the group's queries and output gradients, as rows and as columns, and computes what its blocks need next
    /// to them.
    fn load(&mut self, group: &Group, head: usize, tensors: &Backward<'_, Bf16>) -> [Rows; GROUP] {
        let (head_dim, products) = (self.attention.shape.head_dim, self.products);
        let [query, d_out] =
            [tensors.q, tensors.dout].map(|matrix| matrix.block(group.token, group.queries, head * head_dim, head_dim));
        self.workspace.query.pack(products, Adjacent::Steps, query);
        self.gradients.query_rows.pack(products, Adjacent::Lanes, query);
        self.gradients.d_out.pack(products, Adjacent::Steps, d_out);
        self.gradients.d_out_rows.pack(products, Adjacent::Lanes, d_out);
        let mut rows = [Rows::NONE; GROUP];
        for (place, block) in group.blocks() {
            let transposes = (self.workspace.sums.buffer(place), &mut *self.workspace.rows);
            rows[place] = tensors.rows_of(block, (head, head_dim), transposes, self.instruction_set);
        }
        rows
    }

    /// Packs a tile's keys and values, and its keys transposed.
    fn pack(&mut self, group: &Group, tile: &GroupTile, head: usize, tensors: &Backward<'_, Bf16>) {
        let [key, value] = group.key_rows(tile, [tensors.k, tensors.v], head, self.attention);
        self.workspace.key.pack(self.products, Adjacent::Steps, key);
        self.gradients.value.pack(self.products, Adjacent::Steps, value);
        self.gradients.key_channels.pack(self.products, Adjacent::Lanes, key);
    }

    /// Probabilities of a block's tile and the gradients of its scores, rounded, in the columns of the block; zeros for
    /// the other keys of the group's tile.
    fn tile_scores(
        &mut self,
        block: &QueryBlock,
        tile: &KeyTile,
        (place, head): (usize, usize),
        rows: &Rows,
        keys_of_group: usize,
    ) {
        let Workspace { key, query, scores, probabilities, .. } = &mut self.workspace;
        let BackwardWorkspace { value, d_out, d_probabilities, d_scores, .. } = &mut self.gradients;
        let (keys, queries) = (tile.keys.len(), block.queries);
        let (scores, d_probabilities) = (&mut scores[..keys], &mut d_probabilities[..keys]);
        for (a, b, target) in [(key, query, &mut *scores), (value, d_out, &mut *d_probabilities)] {
            let (a, b) = (a.packed().lanes(0, keys), b.packed().lanes(place * QUERIES, queries));
            let target = MatMut::new(target.as_flattened_mut(), keys, queries, QUERIES);
            self.products.multiply(a, b, Begin::Zero, target);
        }
        let kernel = SoftmaxTileBackward {
            block,
            tile,
            scores,
            d_scores: d_probabilities,
            log_sum_exp: &rows.log_sum_exp,
            delta: &rows.delta,
            scale: self.attention.scale,
            changes: self.attention.changes(head),
            dropout: self.attention.dropout_of(head),
            probabilities: Rounded { rows: probabilities, block: place },
            gradients: Rounded { rows: d_scores, block: place },
        };
        lanes::run(self.instruction_set, kernel);
        hide(probabilities, place, keys..keys_of_group);
        hide(d_scores, place, keys..keys_of_group);
    }

    /// Adds a tile's terms to the gradients of a block's queries.
    fn query_gradients(&mut self, block: &QueryBlock, tile: &KeyTile, place: usize) {
        let Workspace { block: packed, sums, .. } = &mut self.workspace;
        let d_scores = rounded_block(self.gradients.d_scores, place, tile.keys.len(), block.queries);
        packed.pack(self.products, Adjacent::Lanes, d_scores);
        let d_scores = packed.packed();
        let keys = self.gradients.key_channels.packed().steps(0, d_scores.blocks());
        sums.add(self.products, place, (keys, d_scores), block.queries);
    }

    /// Adds a tile's terms to the sums of its keys and values.
    fn key_gradients(&mut self, group: &Group, tile: &GroupTile, sums: &KeySums, tensors: &mut Backward<'_, Bf16>) {
        let (keys, places) = (tile.keys.len(), tile.places());
        let BackwardWorkspace { query_rows, d_out_rows, group: packed, d_scores, .. } = &mut self.gradients;
        let queries = (places.len() * QUERIES).min(group.queries - places.start * QUERIES);
        let of_values = (Sum::Values, &mut *self.workspace.probabilities, d_out_rows);
        for (sum, rows, b) in [of_values, (Sum::Keys, d_scores, query_rows)] {
            for place in places.clone().filter(|place| !tile.is_seen_by(*place)) {
                hide(rows, place, 0..keys);
            }
            packed.pack(self.products, Adjacent::Steps, rounded_block(rows, places.start, keys, queries));
            let b = b.packed().steps(places.start, places.len());
            let mut sums = sums.rows(sum, tensors);
            let sums = sums.block(tile.keys.start, keys, 0, self.attention.shape.head_dim);
            self.products.multiply(packed.packed(), b, Begin::Stored, sums);
        }
    }
}

/// Zeros for a block's queries and these keys.
fn hide(rows: &mut [RoundedRow], block: usize, keys: Range<usize>) {
    for row in &mut rows[keys] {
        row[block].fill(Bf16(0));
    }
}
