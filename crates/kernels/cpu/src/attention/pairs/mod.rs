//! Attention with products in AMX order.

mod backward;
mod forward;
mod query_sums;
mod workspace;

pub use backward::attention_backward_pairs;
pub use forward::attention_forward_pairs;

use device::Bf16;

use super::softmax::Results;
use super::{KEYS, QUERIES};
use crate::copy::Copy;
use crate::gemm::in_place::transpose;
use crate::gemm::kernels::Kernels;
use crate::instruction_set::InstructionSet;
use crate::lanes::{self, LANES, Lanes, Stored};
use crate::view::{MatMut, MatRef};

/// Blocks of queries that meet a tile of keys before it leaves the cache: it is packed once for all of them. No bit
/// depends on it.
const GROUP: usize = 8;

/// The blocks of queries that meet a tile, and the tile as they see it.
type Group = crate::attention::group::Group<GROUP, KEYS>;
type GroupTile = crate::attention::group::GroupTile<GROUP>;

/// One key's probabilities, or gradients of scores, of a group's queries. The last place is there so that rows do not
/// meet in a few sets of the cache.
type RoundedRow = [[Bf16; QUERIES]; GROUP + 1];

/// Rounded to bf16, in the columns of one block of a group.
struct Rounded<'a> {
    rows: &'a mut [RoundedRow],
    block: usize,
}

impl Results for Rounded<'_> {
    #[inline(always)]
    fn score<L: Lanes>(product: L, scale: f32) -> L {
        product * L::splat(scale)
    }

    #[inline(always)]
    fn store<L: Lanes>(&mut self, row: usize, group: usize, _: &mut [f32; LANES], value: L) {
        value.store_bf16(&mut self.rows[row][self.block].as_chunks_mut().0[group]);
    }
}

/// Transposes sums `[head_dim, QUERIES]` into a block's rows `[queries, head_dim]`, by way of `rows`, and rounds.
pub(super) fn store_queries<E: Stored>(
    instruction_set: InstructionSet,
    sums: &[f32],
    rows: &mut [f32],
    target: MatMut<'_, E>,
) {
    let (queries, head_dim) = (target.rows(), target.cols());
    let stride = head_dim.next_multiple_of(LANES);
    transpose(Kernels::of(instruction_set), MatRef::new(sums, head_dim, queries, QUERIES), rows, stride);
    let from = MatRef::new(rows, queries, head_dim, stride);
    lanes::run(instruction_set, Copy { from, to: target });
}

/// The numbers of some queries from those of a block on.
fn rounded_block(rows: &[RoundedRow], block: usize, keys: usize, queries: usize) -> MatRef<'_, Bf16> {
    let row = rows.as_flattened().as_flattened();
    MatRef::new(&row[block * QUERIES..], keys, queries, (GROUP + 1) * QUERIES)
}
