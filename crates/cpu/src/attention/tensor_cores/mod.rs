//! Attention whose products are in the order of tensor cores.

mod backward;
mod forward;
mod softmax;
mod workspace;

pub use backward::attention_backward_blocks;
pub use forward::attention_forward_blocks;

use super::group;
use super::softmax::Results;
use crate::lanes::{LANES, Lanes};

/// Keys per tile. Part of the numerics.
pub const BLOCK_KEYS: usize = 128;

/// Blocks of queries that meet a tile of keys before it leaves the cache: it is packed once for all of them. No bit
/// depends on it.
const GROUP: usize = 4;

type Group = group::Group<GROUP, BLOCK_KEYS>;
type GroupTile = group::GroupTile<GROUP>;

/// In place of products, which are scaled, not the queries.
struct Scaled;

impl Results for Scaled {
    #[inline(always)]
    fn score<L: Lanes>(product: L, scale: f32) -> L {
        product * L::splat(scale)
    }

    #[inline(always)]
    fn store<L: Lanes>(&mut self, _: usize, _: usize, in_place: &mut [f32; LANES], value: L) {
        value.store(in_place);
    }
}
