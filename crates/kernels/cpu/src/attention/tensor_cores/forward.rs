//! The forward pass.

use super::softmax::{ChainedSoftmax, Chains, Factors};
use super::workspace::{Memory, Workspace};
use super::{GROUP, Group, GroupTile};
use crate::attention::pairs::store_queries;
use crate::attention::query_block::{KeyTile, QueryBlock};
use crate::attention::softmax::ScaleQueries;
use crate::attention::widened::Operand;
use crate::attention::{Attention, Forward, QUERIES};
use crate::gemm::pairs::small::Adjacent;
use crate::gemm::tensor_cores::pack::PackedBuffer;
use crate::gemm::tensor_cores::tile::Multiply;
use crate::gemm::{BlockRule, Narrow, PackingBuffers};
use crate::instruction_set::InstructionSet;
use crate::lanes;
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// Attention's outputs and log-sum-exps, both assigned, with products in blocks. Counts `2 head_dim` multiply-adds
/// per visible pair and head.
///
/// Panics if the shapes do not fit together, on tensors that are not narrow, or on a machine without `instruction_set`.
pub fn attention_forward_blocks<E: Operand>(
    attention: &Attention<'_>,
    mut tensors: Forward<'_, E>,
    rule: BlockRule,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let keys = tensors.keys_of(attention);
    let shape = attention.shape;
    let Some(narrow) = Narrow::of([E::DTYPE; 2]) else { panic!("{:?} is not multiplied in blocks", E::DTYPE) };
    let mut memory = Memory::new(narrow, packing, shape.head_dim);
    let (workspace, value) = (memory.workspace(), memory.channels());
    let mut pass = Pass { attention, rule, workspace, value, instruction_set, meter };
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
    rule: BlockRule,
    workspace: Workspace<'a>,
    /// `[head_dim, BLOCK_KEYS]`: a tile's values.
    value: PackedBuffer<'a>,
    instruction_set: InstructionSet,
    meter: &'a Meter,
}

impl Pass<'_> {
    /// All keys for one group of queries of one head.
    fn group<E: Operand>(&mut self, group: &Group, head: usize, tensors: &mut Forward<'_, E>) {
        let (head_dim, set) = (self.attention.shape.head_dim, self.instruction_set);
        let queries = tensors.q.block(group.token, group.queries, head * head_dim, head_dim);
        self.workspace.query.pack(Adjacent::Steps, queries);
        let mut running: [Chains; GROUP] = std::array::from_fn(|_| Chains::new());
        self.workspace.sums.fill(0.0);
        for tile in group.tiles() {
            self.pack(group, &tile, head, tensors);
            for (place, block, tile) in group.seeing(&tile) {
                self.tile(block, tile, (place, head), &mut running[place]);
            }
        }
        for ((place, block), running) in group.blocks().zip(&running) {
            let mut running = running.joined();
            tensors.end(self.attention, block, head, &mut running, set);
            let sums = &mut self.workspace.sums[place * head_dim * QUERIES..][..head_dim * QUERIES];
            let rows = &mut sums.as_chunks_mut().0[..head_dim];
            lanes::run(set, ScaleQueries { rows, factors: &running.decay });
            let target = tensors.out.block(block.token, block.queries, head * head_dim, head_dim);
            store_queries(set, sums, self.workspace.rows, target);
        }
    }

    /// Packs a tile's keys, and its values transposed.
    fn pack<E: Operand>(&mut self, group: &Group, tile: &GroupTile, head: usize, tensors: &Forward<'_, E>) {
        let [key, value] = group.key_rows(tile, [tensors.k, tensors.v], head, self.attention);
        self.workspace.key.pack(Adjacent::Steps, key);
        self.value.pack(Adjacent::Lanes, value);
    }

    /// A tile of keys for one block of queries.
    fn tile(&mut self, block: &QueryBlock, tile: &KeyTile, (place, head): (usize, usize), running: &mut Chains) {
        let (rule, set) = (self.rule, self.instruction_set);
        let (head_dim, keys, queries) = (self.attention.shape.head_dim, tile.keys.len(), block.queries);
        let Workspace { key, query, block: packed, scores, sums, .. } = &mut self.workspace;
        let scores = &mut scores[..keys];
        scores.fill([0.0; QUERIES]);
        let (a, b) = (key.packed().lanes(0, keys), query.packed().lanes(place * QUERIES, queries));
        let c = MatMut::new(scores.as_flattened_mut(), keys, queries, QUERIES);
        lanes::run(set, Multiply { rule, instruction_set: set, a, b, c });

        let changes = self.attention.changes(head);
        let softmax = ChainedSoftmax {
            block,
            tile,
            scores: &mut *scores,
            running: &mut *running,
            factors: Factors::new(self.attention.scale, changes),
            changes,
            dropout: self.attention.dropout_of(head),
        };
        lanes::run(set, softmax);

        let sums = &mut sums[place * head_dim * QUERIES..][..head_dim * QUERIES];
        lanes::run(set, ScaleQueries { rows: sums.as_chunks_mut().0, factors: &running.decay });
        packed.pack(Adjacent::Lanes, MatRef::new(scores.as_flattened(), keys, queries, QUERIES));
        let b = packed.packed();
        let a = self.value.packed().steps(0, b.blocks());
        lanes::run(
            set,
            Multiply { rule, instruction_set: set, a, b, c: MatMut::new(sums, head_dim, queries, QUERIES) },
        );
        self.meter.add_multiply_adds((2 * tile.pairs * head_dim) as u64);
    }
}
