//! Attention whose products are in pairs.

mod backward;
mod forward;
mod group;
mod rooms;

pub use backward::attention_backward_pairs;
pub use forward::attention_forward_pairs;

use device::Bf16;

use super::QUERIES;
use super::softmax::Results;
use crate::lanes::{LANES, Lanes};

/// Blocks of queries that meet a tile of keys before it leaves the cache: it is packed once for all of them. No bit depends on it.
const GROUP: usize = 8;

/// One key's probabilities, or gradients of scores, of a group's queries. The last place is there so that rows do not meet in a few sets of the
/// cache.
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
