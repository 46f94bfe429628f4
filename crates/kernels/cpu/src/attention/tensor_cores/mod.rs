//! Attention whose products are in the order of tensor cores.

mod backward;
mod forward;
mod softmax;
mod workspace;

pub use backward::attention_backward_blocks;
pub use forward::attention_forward_blocks;

use super::group;

/// Keys per tile. Part of the numerics.
pub const BLOCK_KEYS: usize = 128;

/// Blocks of queries that meet a tile of keys before it leaves the cache: it is packed once for all of them. No bit
/// depends on it.
const GROUP: usize = 4;

type Group = group::Group<GROUP, BLOCK_KEYS>;
type GroupTile = group::GroupTile<GROUP>;
