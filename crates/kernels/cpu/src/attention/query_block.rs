//! A block of queries of one head and the keys that it sees.

use std::ops::Range;

use super::dropout::KEYS_PER_BLOCK;
use super::{Attention, KEYS, QUERIES};
use crate::lanes::{LANES, Stored};
use crate::view::MatRef;

/// Up to [`QUERIES`] consecutive queries of one sequence.
pub(super) struct QueryBlock {
    /// The call's key at position 0 of the sequence.
    pub first_key: usize,
    /// The call's token of the first query.
    pub token: usize,
    /// Queries in the block.
    pub queries: usize,
    /// First visible position per query; lanes without a query see nothing.
    pub first: [f32; QUERIES],
    /// One past the last visible position per query.
    pub last: [f32; QUERIES],
    /// Where biases of scores are counted from: the same, or beyond the keys where these are some keys of a sequence.
    pub end: [f32; QUERIES],
    intervals: [Range<usize>; QUERIES],
    /// From the first visible position of all queries to one past the last.
    seen: Range<usize>,
}

/// A tile of keys as a query block sees it.
pub(super) struct KeyTile {
    /// Positions in the sequence, starting at a multiple of four.
    pub keys: Range<usize>,
    /// How many of the pairs (query, key) are visible.
    pub pairs: usize,
}

impl QueryBlock {
    /// The block of `sequence` that starts at its query `position`; each sequence has `keys` keys.
    pub fn new(attention: &Attention<'_>, keys: usize, sequence: usize, position: usize) -> Self {
        let length = attention.shape.sequence_length;
        let first_key = sequence * keys;
        let token = sequence * length + position;
        let queries = QUERIES.min(length - position);
        let (mut intervals, mut end) = ([const { 0..0 }; QUERIES], [0.0; QUERIES]);
        let visible = &attention.visible[token..token + queries];
        for ((interval, end), [first, last]) in intervals.iter_mut().zip(&mut end).zip(visible) {
            // Positions count from the call's first key.
            let [first, last] = [first, last].map(|place| i64::from(*place) - attention.first_place() as i64);
            let there = last.clamp(0, keys as i64);
            *end = if attention.first_key.is_some() { last } else { there } as f32;
            let last = there as usize;
            *interval = (first.max(0) as usize).min(last)..last;
        }
        let first = std::array::from_fn(|query| intervals[query].start as f32);
        let last = std::array::from_fn(|query| intervals[query].end as f32);
        let not_empty = || intervals.iter().filter(|interval| !interval.is_empty());
        let start = not_empty().map(|interval| interval.start).min().unwrap_or(0);
        let seen = start..not_empty().map(|interval| interval.end).max().unwrap_or(0);
        Self { first_key, token, queries, first, last, end, intervals, seen }
    }

    /// Queries up to a whole number of lanes.
    pub fn width(&self) -> usize {
        self.queries.next_multiple_of(LANES)
    }

    /// The tiles with visible pairs, in ascending order. Tiles start at multiples of [`KEYS`], their first at a smaller
    /// multiple of four if nothing before it is visible.
    pub fn tiles(&self) -> impl Iterator<Item = KeyTile> {
        let Range { start: first, end: last } = self.seen;
        self.tile_numbers().filter_map(move |tile| {
            let start = (tile * KEYS).max(first / KEYS_PER_BLOCK * KEYS_PER_BLOCK);
            let keys = start..last.min((tile + 1) * KEYS);
            let pairs = self.pairs(&keys);
            (pairs > 0).then_some(KeyTile { keys, pairs })
        })
    }

    /// The tiles from the one with the first visible key to the one with the last, by number.
    pub fn tile_numbers(&self) -> Range<usize> {
        self.tile_numbers_of::<KEYS>()
    }

    /// The same of tiles of `LEN` keys.
    pub fn tile_numbers_of<const LEN: usize>(&self) -> Range<usize> {
        self.seen.start / LEN..self.seen.end.div_ceil(LEN)
    }

    /// The tile of `LEN` keys of this number from its first key on; `None` where nothing in it is visible.
    pub fn tile<const LEN: usize>(&self, number: usize) -> Option<KeyTile> {
        let keys = number * LEN..self.seen.end.min((number + 1) * LEN);
        let pairs = self.pairs(&keys);
        (pairs > 0).then_some(KeyTile { keys, pairs })
    }

    fn pairs(&self, keys: &Range<usize>) -> usize {
        let shared =
            |interval: &Range<usize>| interval.end.min(keys.end).saturating_sub(interval.start.max(keys.start));
        self.intervals[..self.queries].iter().map(shared).sum()
    }

    /// Whether every query sees every key of the tile.
    pub fn sees_all(&self, tile: &KeyTile) -> bool {
        tile.pairs == tile.keys.len() * self.queries
    }

    /// The block's rows of a head of `matrix[tokens, heads * head_dim]`.
    pub fn rows<'a, E: Stored>(&self, matrix: MatRef<'a, E>, head: usize, head_dim: usize) -> MatRef<'a, E> {
        matrix.block(self.token, self.queries, head * head_dim, head_dim)
    }

    /// A tile's rows of a head of `matrix[sequences * keys, heads * head_dim]`.
    pub fn key_rows<'a, E: Stored>(
        &self,
        tile: &KeyTile,
        matrix: MatRef<'a, E>,
        head: usize,
        head_dim: usize,
    ) -> MatRef<'a, E> {
        matrix.block(self.first_key + tile.keys.start, tile.keys.len(), head * head_dim, head_dim)
    }
}
