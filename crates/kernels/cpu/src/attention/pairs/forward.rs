//! The forward pass.

use device::Bf16;

use super::workspace::{Memory, Workspace};
use super::{GROUP, Group, GroupTile, Rounded, rounded_block, store_queries};
use crate::attention::query_block::{KeyTile, QueryBlock};
use crate::attention::softmax::{Running, ScaleQueries, SoftmaxTile};
use crate::attention::{Attention, Forward, QUERIES};
use crate::gemm::PackingBuffers;
use crate::gemm::pairs::small::{Adjacent, Begin, PackingWorkspace, SmallProducts};
use crate::instruction_set::InstructionSet;
use crate::lanes;
use crate::meter::Meter;
use crate::view::MatMut;

/// Attention's outputs and log-sum-exps, both assigned, with products in AMX order. Counts `2 head_dim` multiply-adds
/// per visible pair and head.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn attention_forward_pairs(
    attention: &Attention<'_>,
    mut tensors: Forward<'_, Bf16>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let keys = tensors.keys_of(attention);
    let shape = attention.shape;
    let products = SmallProducts::enter(instruction_set);
    let mut memory = Memory::new(&products, packing, shape.head_dim);
    let (workspace, value) = (memory.workspace(), memory.channels());
    let mut pass = Pass { attention, products: &products, workspace, value, instruction_set, meter };
    for sequence in 0..shape.sequences {
        for head in 0..shape.heads {
            for position in (0..shape.sequence_length).step_by(GROUP * QUERIES) {
                pass.group(&Group::new(attention, keys, sequence, position), head, &mut tensors);
            }
        }
    }
}

struct Pass<'a> {
    attention: &'a Attention<'a>,
    products: &'a SmallProducts,
    workspace: Workspace<'a>,
    /// `[head_dim, KEYS]`: a tile's values.
    value: PackingWorkspace<'a>,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

impl Pass<'_> {
    /// All keys for one group of queries of one head.
    fn group(&mut self, group: &Group, head: usize, tensors: &mut Forward<'_, Bf16>) {
        let head_dim = self.attention.shape.head_dim;
        let queries = tensors.q.block(group.token, group.queries, head * head_dim, head_dim);
        self.workspace.query.pack(self.products, Adjacent::Steps, queries);
        let mut running: [Running; GROUP] = std::array::from_fn(|_| Running::new());
        self.workspace.sums.restart();
        for tile in group.tiles() {
            self.pack(group, &tile, head, tensors);
            for (place, block, tile) in group.seeing(&tile) {
                self.tile(block, tile, (place, head), &mut running[place]);
            }
        }
        for ((place, block), running) in group.blocks().zip(&mut running) {
            let sums = self.workspace.sums.finished(place);
            tensors.end(self.attention, block, head, running, self.instruction_set);
            let rows = &mut sums.as_chunks_mut().0[..head_dim];
            lanes::run(self.instruction_set, ScaleQueries { rows, factors: &running.decay });
            let target = tensors.out.block(block.token, block.queries, head * head_dim, head_dim);
            store_queries(self.instruction_set, sums, self.workspace.rows, target);
        }
    }

    /// Packs a tile's keys, and its values transposed.
    fn pack(&mut self, group: &Group, tile: &GroupTile, head: usize, tensors: &Forward<'_, Bf16>) {
        let [key, value] = group.key_rows(tile, [tensors.k, tensors.v], head, self.attention);
        self.workspace.key.pack(self.products, Adjacent::Steps, key);
        self.value.pack(self.products, Adjacent::Lanes, value);
    }

    /// A tile of keys for one block of queries.
    fn tile(&mut self, block: &QueryBlock, tile: &KeyTile, (place, head): (usize, usize), running: &mut Running) {
        let Workspace { key, query, block: packed, scores, probabilities, sums, .. } = &mut self.workspace;
        let (head_dim, keys, queries) = (self.attention.shape.head_dim, tile.keys.len(), block.queries);
        let scores = &mut scores[..keys];
        let queries_packed = query.packed().lanes(place * QUERIES, queries);
        let view = MatMut::new(scores.as_flattened_mut(), keys, queries, QUERIES);
        self.products.multiply(key.packed().lanes(0, keys), queries_packed, Begin::Zero, view);

        let softmax = SoftmaxTile {
            block,
            tile,
            scores,
            running,
            scale: self.attention.scale,
            changes: self.attention.changes(head),
            dropout: self.attention.dropout_of(head),
            probabilities: Rounded { rows: probabilities, block: place },
        };
        lanes::run(self.instruction_set, softmax);

        if let Some(sums) = sums.stored(place) {
            let rows = sums.as_chunks_mut().0;
            lanes::run(self.instruction_set, ScaleQueries { rows, factors: &running.decay });
        }
        packed.pack(self.products, Adjacent::Lanes, rounded_block(probabilities, place, keys, queries));
        let probabilities = packed.packed();
        let value = self.value.packed().steps(0, probabilities.blocks());
        sums.add(self.products, place, (value, probabilities), queries);
        self.meter.add_multiply_adds((2 * tile.pairs * head_dim) as u64);
    }
}
