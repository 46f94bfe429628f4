//! Packing intervals: values with a size and a time in which they live get offsets, such that values that are alive
//! together are disjoint. Several heuristics are tried; the best result is kept.

mod colours;
mod in_order;
mod in_time;
mod promoted;

use std::cmp::Reverse;

use colours::by_colour;
use in_time::{Fit, in_time};
use promoted::{Goal, promoted};

/// A value to pack: it lives in instructions `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// First instruction.
    pub start: usize,
    /// Past the last instruction; greater than `start`.
    pub end: usize,
    /// Bytes, a multiple of the alignment.
    pub size_bytes: usize,
}

impl Item {
    fn length(&self) -> usize {
        self.end - self.start
    }

    fn meets(&self, other: &Item) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Offsets of items, and the bytes that they need together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Offset of each item.
    pub offsets: Vec<usize>,
    /// Past the last byte of all items.
    pub height_bytes: usize,
}

impl Packing {
    fn new(items: &[Item], offsets: Vec<usize>) -> Packing {
        let ends = items.iter().zip(&offsets).map(|(item, offset)| offset + item.size_bytes);
        Packing { height_bytes: ends.max().unwrap_or(0), offsets }
    }
}

/// The largest sum of sizes that are alive in one instruction: no packing needs less.
pub fn largest_live_bytes(items: &[Item]) -> usize {
    live_bytes(items).into_iter().max().unwrap_or(0)
}

/// The sum of sizes that are alive in each instruction, up to the last in which any is.
pub fn live_bytes(items: &[Item]) -> Vec<usize> {
    let len = items.iter().map(|item| item.end).max().unwrap_or(0);
    let (mut born, mut dead) = (vec![0; len], vec![0; len + 1]);
    for item in items.iter().filter(|item| item.start < item.end) {
        born[item.start] += item.size_bytes;
        dead[item.end] += item.size_bytes;
    }
    let mut live = 0;
    let at = |(born, dead): (usize, usize)| {
        live = live + born - dead;
        live
    };
    born.into_iter().zip(dead).map(at).collect()
}

/// How much may be tried: times that an item that is being placed is compared with one that lives at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort(pub usize);

impl Effort {
    /// The effort of one of `parts` equal parts of a problem.
    pub fn part(self, parts: usize) -> Effort {
        Effort(self.0 / parts.max(1))
    }

    /// How often `items` can be placed in some order.
    fn rounds(self, items: &[Item]) -> usize {
        self.0 / (items.len() + meetings(items)).max(1)
    }
}

/// Pairs of items that are alive together.
fn meetings(items: &[Item]) -> usize {
    let mut deaths: Vec<usize> = items.iter().map(|item| item.end).collect();
    deaths.sort_unstable();
    let born: usize = (0..items.len()).sum();
    let dead_before = items.iter().map(|item| deaths.partition_point(|death| *death <= item.start));
    born - dead_before.sum::<usize>()
}

/// Places items with the best of several heuristics; stops at the first that needs at most `slack_bytes` more than
/// [`largest_live_bytes`]. `effort` bounds those that place items again and again.
pub fn pack(items: &[Item], slack_bytes: usize, effort: Effort) -> Packing {
    let least = largest_live_bytes(items);
    let enough = least + slack_bytes;
    let in_time = [Fit::First, Fit::Best].into_iter().map(|fit| Some(in_time(items, fit)));
    let by_colour = std::iter::once_with(|| by_colour(items, enough));
    let rounds = effort.rounds(items);
    // Items that end between the two are promoted or not; either choice may succeed.
    let in_order = [enough, least].into_iter().flat_map(|limit| ORDERS.map(|order| (limit, order))).take(rounds);
    let in_order = in_order.map(|(limit, order)| {
        let goal = Goal { limit, enough };
        Some(promoted(items, sorted(items, order), goal, rounds / (2 * ORDERS.len())))
    });
    let mut best = Packing { offsets: vec![0; items.len()], height_bytes: usize::MAX };
    for packing in in_time.chain(by_colour).chain(in_order).flatten() {
        if packing.height_bytes < best.height_bytes {
            best = packing;
        }
        if best.height_bytes <= enough {
            break;
        }
    }
    best
}

type Key = fn(&Item) -> (usize, usize);

/// Large ones first, long ones first, those first that take most of both; from the first birth on, and from the last
/// death back; large ones first, of one size those first that are born first, or that die last.
const ORDERS: [Key; 7] = [
    |item| (item.size_bytes, item.length()),
    |item| (item.length(), item.size_bytes),
    |item| (item.size_bytes * item.length(), 0),
    |item| (usize::MAX - item.start, item.size_bytes),
    |item| (item.end, item.size_bytes),
    |item| (item.size_bytes, usize::MAX - item.start),
    |item| (item.size_bytes, item.end),
];

/// Items in descending order of a key.
fn sorted(items: &[Item], key: Key) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&index| Reverse(key(&items[index])));
    order
}
