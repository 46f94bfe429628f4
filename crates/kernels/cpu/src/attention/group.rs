//! Blocks of queries that meet the same tiles of keys one after the other.

use std::ops::Range;

use super::query_block::{KeyTile, QueryBlock};
use super::{Attention, QUERIES};
use crate::lanes::Stored;
use crate::view::MatRef;

/// Up to `BLOCKS` consecutive blocks of queries of one sequence, which meet tiles of `KEYS` keys.
pub(super) struct Group<const BLOCKS: usize, const KEYS: usize> {
    /// Those that there are come first.
    blocks: [Option<QueryBlock>; BLOCKS],
    /// The call's key at position 0 of the sequence.
    first_key: usize,
    /// The call's token of the first query.
    pub token: usize,
    /// Queries in all of them.
    pub queries: usize,
}

/// A tile of keys as the blocks of a group see it.
pub(super) struct GroupTile<const BLOCKS: usize> {
    /// Positions in the sequence: of all that some block sees.
    pub keys: Range<usize>,
    /// The keys that each block sees, if any.
    of_blocks: [Option<KeyTile>; BLOCKS],
}

impl<const BLOCKS: usize, const KEYS: usize> Group<BLOCKS, KEYS> {
    /// The group of `sequence` that starts at its query `position`; each sequence has `keys` keys.
    pub fn new(attention: &Attention<'_>, keys: usize, sequence: usize, position: usize) -> Self {
        let length = attention.shape.sequence_length;
        let blocks = std::array::from_fn(|index| {
            let position = position + index * QUERIES;
            (position < length).then(|| QueryBlock::new(attention, keys, sequence, position))
        });
        let queries = (BLOCKS * QUERIES).min(length - position);
        Self { blocks, first_key: sequence * keys, token: sequence * length + position, queries }
    }

    /// Its blocks with their places.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, &QueryBlock)> {
        self.blocks.iter().flatten().enumerate()
    }

    /// The tiles of keys with visible pairs, in ascending order.
    pub fn tiles(&self) -> impl Iterator<Item = GroupTile<BLOCKS>> {
        let numbers =
            || self.blocks.iter().flatten().map(QueryBlock::tile_numbers_of::<KEYS>).filter(|range| !range.is_empty());
        let first = numbers().map(|range| range.start).min().unwrap_or(0);
        let last = numbers().map(|range| range.end).max().unwrap_or(0);
        (first..last).filter_map(|number| {
            let of_blocks = std::array::from_fn(|block| self.blocks[block].as_ref()?.tile::<KEYS>(number));
            let seen = || of_blocks.iter().flatten().map(|tile: &KeyTile| tile.keys.clone());
            let keys = seen().next()?.start..seen().map(|keys| keys.end).max()?;
            Some(GroupTile { keys, of_blocks })
        })
    }

    /// A tile's keys and values, `matrices[sequences * keys, kv_heads * head_dim]`, for the queries of `head`.
    pub fn key_rows<'a, E: Stored>(
        &self,
        tile: &GroupTile<BLOCKS>,
        matrices: [MatRef<'a, E>; 2],
        head: usize,
        attention: &Attention<'_>,
    ) -> [MatRef<'a, E>; 2] {
        let (first, column, head_dim) =
            (self.first_key + tile.keys.start, head / attention.group(), attention.shape.head_dim);
        matrices.map(|matrix| matrix.block(first, tile.keys.len(), column * head_dim, head_dim))
    }

    /// The blocks that see something of a tile, with their places.
    pub fn seeing<'a>(
        &'a self,
        tile: &'a GroupTile<BLOCKS>,
    ) -> impl Iterator<Item = (usize, &'a QueryBlock, &'a KeyTile)> {
        let blocks = self.blocks.iter().zip(&tile.of_blocks).enumerate();
        blocks.filter_map(|(place, (block, tile))| Some((place, block.as_ref()?, tile.as_ref()?)))
    }
}

impl<const BLOCKS: usize> GroupTile<BLOCKS> {
    /// Whether the block at this place sees something.
    pub fn is_seen_by(&self, place: usize) -> bool {
        self.of_blocks[place].is_some()
    }

    /// The places from the first block that sees something to the last.
    pub fn places(&self) -> Range<usize> {
        let sees = |tile: &Option<KeyTile>| tile.is_some();
        let first = self.of_blocks.iter().position(sees).unwrap_or(0);
        first..self.of_blocks.iter().rposition(sees).map_or(first, |last| last + 1)
    }
}
