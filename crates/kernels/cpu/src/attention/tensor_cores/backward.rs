//! The backward pass: probabilities are recomputed, tile by tile.

use super::softmax::{Factors, TileGradient};
use super::workspace::{BackwardWorkspace, Memory, Workspace};
use super::{GROUP, Group, GroupTile};
use crate::attention::backward::Rows;
use crate::attention::key_sums::{KeySums, Sum};
use crate::attention::pairs::store_queries;
use crate::attention::query_block::{KeyTile, QueryBlock};
use crate::attention::widened::Operand;
use crate::attention::{Attention, Backward, QUERIES};
use crate::gemm::pairs::small::Adjacent;
use crate::gemm::tensor_cores::tile::Multiply;
use crate::gemm::{BlockRule, Narrow, PackingBuffers};
use crate::instruction_set::InstructionSet;
use crate::lanes;
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// Blocks of sixteen queries of a block.
const STEPS_OF_QUERIES: usize = QUERIES / 16;

/// Gradients of attention's queries, keys and values, all assigned, with products in blocks. Counts `5 head_dim`
/// multiply-adds per visible pair and head.
///
/// Panics if the shapes do not fit together, on tensors that are not narrow, or on a machine without `instruction_set`.
pub fn attention_backward_blocks<E: Operand>(
    attention: &Attention<'_>,
    mut tensors: Backward<'_, E>,
    rule: BlockRule,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (keys, shape) = (tensors.keys_of(attention), attention.shape);
    let Some(narrow) = Narrow::of([E::DTYPE; 2]) else { panic!("{:?} is not multiplied in blocks", E::DTYPE) };
    let mut memory = Memory::new(narrow, packing, shape.head_dim);
    let (workspace, gradients) = (memory.workspace(), memory.backward_workspace());
    let mut pass = Pass { attention, rule, workspace, gradients, instruction_set, meter };
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
    rule: BlockRule,
    workspace: Workspace<'a>,
    gradients: BackwardWorkspace<'a>,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

impl Pass<'_> {
    /// All keys for one group of queries of one head.
    fn group<E: Operand>(&mut self, group: &Group, head: usize, tensors: &mut Backward<'_, E>, sums: &mut KeySums) {
        let head_dim = self.attention.shape.head_dim;
        let rows = self.load(group, head, tensors);
        self.workspace.sums.fill(0.0);
        for tile in group.tiles() {
            self.pack(group, &tile, head, tensors);
            sums.clear(tile.keys.end, tensors);
            for (place, block, of_block) in group.seeing(&tile) {
                self.scores(block, of_block, (place, head), &rows[place]);
                self.query_gradients(block, of_block, place);
                self.key_gradients(block, of_block, place, sums, tensors);
                self.meter.add_multiply_adds((5 * of_block.pairs * head_dim) as u64);
            }
        }
        for (place, block) in group.blocks() {
            let target = tensors.dq.block(block.token, block.queries, head * head_dim, head_dim);
            let sums = &self.workspace.sums[place * head_dim * QUERIES..][..head_dim * QUERIES];
            store_queries(self.instruction_set, sums, self.workspace.rows, target);
        }
    }

    /// Packs the group's queries and output gradients, as rows and as columns, and computes the statistics of its
    /// blocks.
    fn load<E: Operand>(&mut self, group: &Group, head: usize, tensors: &Backward<'_, E>) -> [Rows; GROUP] {
        let head_dim = self.attention.shape.head_dim;
        let [query, d_out] =
            [tensors.q, tensors.dout].map(|matrix| matrix.block(group.token, group.queries, head * head_dim, head_dim));
        self.workspace.query.pack(Adjacent::Steps, query);
        self.gradients.d_out.pack(Adjacent::Steps, d_out);
        self.gradients.query_rows.pack(Adjacent::Lanes, query);
        self.gradients.d_out_rows.pack(Adjacent::Lanes, d_out);
        let mut rows = [Rows::NONE; GROUP];
        for (place, block) in group.blocks() {
            // The sums are not needed yet.
            let Workspace { sums, rows: transpose, .. } = &mut self.workspace;
            rows[place] =
                tensors.rows_of(block, (head, head_dim), (&mut **sums, &mut **transpose), self.instruction_set);
        }
        rows
    }

    /// Packs a tile's keys and values, and its keys transposed.
    fn pack<E: Operand>(&mut self, group: &Group, tile: &GroupTile, head: usize, tensors: &Backward<'_, E>) {
        let [key, value] = group.key_rows(tile, [tensors.k, tensors.v], head, self.attention);
        self.workspace.key.pack(Adjacent::Steps, key);
        self.gradients.value.pack(Adjacent::Steps, value);
        self.gradients.key_channels.pack(Adjacent::Lanes, key);
    }

    /// Probabilities of a block's tile and the gradients of its scores.
    fn scores(&mut self, block: &QueryBlock, tile: &KeyTile, (place, head): (usize, usize), rows: &Rows) {
        let (rule, set) = (self.rule, self.instruction_set);
        let Workspace { key, query, scores, .. } = &mut self.workspace;
        let BackwardWorkspace { value, d_out, d_probabilities, .. } = &mut self.gradients;
        let (keys, queries) = (tile.keys.len(), block.queries);
        let (scores, d_probabilities) = (&mut scores[..keys], &mut d_probabilities[..keys]);
        for (a, b, target) in [(key, query, &mut *scores), (value, d_out, &mut *d_probabilities)] {
            target.fill([0.0; QUERIES]);
            let (a, b) = (a.packed().lanes(0, keys), b.packed().lanes(place * QUERIES, queries));
            let c = MatMut::new(target.as_flattened_mut(), keys, queries, QUERIES);
            lanes::run(set, Multiply { rule, instruction_set: set, a, b, c });
        }
        let changes = self.attention.changes(head);
        let kernel = TileGradient {
            block,
            tile,
            scores,
            d_scores: d_probabilities,
            log_sum_exp: &rows.log_sum_exp,
            delta: &rows.delta,
            scale: self.attention.scale,
            factors: Factors::new(self.attention.scale, changes),
            changes,
            dropout: self.attention.dropout_of(head),
        };
        lanes::run(set, kernel);
    }

    /// Adds the terms of a tile to the gradients of a block's queries.
    fn query_gradients(&mut self, block: &QueryBlock, tile: &KeyTile, place: usize) {
        let head_dim = self.attention.shape.head_dim;
        let Workspace { block: packed, sums, .. } = &mut self.workspace;
        packed.pack(Adjacent::Lanes, view(self.gradients.d_probabilities, tile, block));
        let b = packed.packed();
        let a = self.gradients.key_channels.packed().steps(0, b.blocks());
        let sums = &mut sums[place * head_dim * QUERIES..][..head_dim * QUERIES];
        let c = MatMut::new(sums, head_dim, block.queries, QUERIES);
        let (rule, instruction_set) = (self.rule, self.instruction_set);
        lanes::run(instruction_set, Multiply { rule, instruction_set, a, b, c });
    }

    /// Adds the terms of a block to the sums of a tile's keys and values.
    fn key_gradients<E: Operand>(
        &mut self,
        block: &QueryBlock,
        tile: &KeyTile,
        place: usize,
        sums: &KeySums,
        tensors: &mut Backward<'_, E>,
    ) {
        let BackwardWorkspace { query_rows, d_out_rows, block_rows, d_probabilities, .. } = &mut self.gradients;
        let of_values = (Sum::Values, &*self.workspace.scores, d_out_rows);
        for (sum, numbers, b) in [of_values, (Sum::Keys, &**d_probabilities, query_rows)] {
            block_rows.pack(Adjacent::Steps, view(numbers, tile, block));
            let a = block_rows.packed();
            let b = b.packed().steps(place * STEPS_OF_QUERIES, a.blocks());
            let mut rows = sums.rows(sum, tensors);
            let c = rows.block(tile.keys.start, tile.keys.len(), 0, self.attention.shape.head_dim);
            let (rule, instruction_set) = (self.rule, self.instruction_set);
            lanes::run(instruction_set, Multiply { rule, instruction_set, a, b, c });
        }
    }
}

/// The numbers of a tile's keys and a block's queries.
fn view<'a>(numbers: &'a [[f32; QUERIES]], tile: &KeyTile, block: &QueryBlock) -> MatRef<'a> {
    MatRef::new(numbers.as_flattened(), tile.keys.len(), block.queries, QUERIES)
}
