//! Packing intervals: values with a size and a time in which they live get offsets, such that values that are alive
//! together are disjoint. Several heuristics are tried; the best result is kept.

use crate::sizes::aligned;

/// A value to place: it lives in instructions `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// First instruction.
    pub start: usize,
    /// Past the last instruction.
    pub end: usize,
    /// Bytes, a multiple of the alignment.
    pub size_bytes: usize,
}

impl Item {
    fn meets(&self, other: &Item) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Offsets of items, and the bytes that they need together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset of each item.
    pub offsets: Vec<usize>,
    /// Past the last byte of all items.
    pub height_bytes: usize,
}

impl Placement {
    fn new(items: &[Item], offsets: Vec<usize>) -> Placement {
        let ends = items.iter().zip(&offsets).map(|(item, offset)| offset + item.size_bytes);
        Placement { height_bytes: ends.max().unwrap_or(0), offsets }
    }
}

/// The largest sum of sizes that are alive in one instruction: no placement needs less.
pub fn largest_live_bytes(items: &[Item]) -> usize {
    let mut changes: Vec<(usize, isize)> = vec![];
    for item in items.iter().filter(|item| item.start < item.end) {
        changes.push((item.start, item.size_bytes as isize));
        changes.push((item.end, -(item.size_bytes as isize)));
    }
    // Deaths before births at equal times.
    changes.sort_unstable();
    let mut live = 0;
    changes.into_iter().fold(0, |largest, (_, change)| {
        live += change;
        largest.max(live)
    }) as usize
}

/// Places items with the best of several heuristics; stops early at a placement that cannot be improved.
pub fn place(items: &[Item]) -> Placement {
    let bound = largest_live_bytes(items);
    let mut best: Option<Placement> = None;
    for heuristic in HEURISTICS {
        let placement = heuristic(items, bound);
        if best.as_ref().is_none_or(|best| placement.height_bytes < best.height_bytes) {
            best = Some(placement);
        }
        if best.as_ref().is_some_and(|best| best.height_bytes <= bound + bound / 200) {
            break;
        }
    }
    best.unwrap_or(Placement { offsets: vec![0; items.len()], height_bytes: 0 })
}

type Heuristic = fn(&[Item], usize) -> Placement;

/// Cheap ones first.
const HEURISTICS: [Heuristic; 7] = [
    |items, _| in_time(items, Fit::First),
    |items, _| in_time(items, Fit::Best),
    |items, bound| two_ended(items, bound),
    |items, _| in_order(items, |item| (item.size_bytes, item.end - item.start)),
    |items, _| in_order(items, |item| (item.end - item.start, item.size_bytes)),
    |items, _| in_order(items, |item| (item.size_bytes * (item.end - item.start), 0)),
    |items, _| in_order(items, |item| (usize::MAX - item.start, item.size_bytes)),
];

/// Which gap is taken.
#[derive(Clone, Copy)]
enum Fit {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough.
    Best,
}

/// What is placed at one time, by offset.
#[derive(Default)]
struct Occupied {
    /// Offset, past the end, end of life.
    blocks: Vec<(usize, usize, usize)>,
}

impl Occupied {
    fn release(&mut self, now: usize) {
        self.blocks.retain(|(_, _, death)| *death > now);
    }

    fn insert(&mut self, offset: usize, item: &Item) {
        let at = self.blocks.partition_point(|(start, _, _)| *start < offset);
        self.blocks.insert(at, (offset, offset + item.size_bytes, item.end));
    }

    /// Offset of a gap of at least `size`; past all blocks if there is none.
    fn lowest(&self, size: usize, fit: Fit) -> usize {
        let mut end = 0;
        let mut best: Option<(usize, usize)> = None;
        for &(start, block_end, _) in &self.blocks {
            if start >= end + size {
                match fit {
                    Fit::First => return end,
                    Fit::Best => best = Some(best.map_or((start - end, end), |best| best.min((start - end, end)))),
                }
            }
            end = end.max(block_end);
        }
        best.map_or(end, |(_, offset)| offset)
    }

    /// Offset of the highest gap of at least `size` below `ceiling`; past all blocks if there is none.
    fn highest(&self, size: usize, ceiling: usize) -> usize {
        let mut start = ceiling;
        for &(offset, block_end, _) in self.blocks.iter().rev() {
            if start >= block_end + size {
                return start - size;
            }
            start = start.min(offset);
        }
        if start >= size { start - size } else { self.lowest(size, Fit::First) }
    }
}

/// Items in order of their births, larger ones first.
fn by_birth(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&index| {
        (items[index].start, usize::MAX - items[index].end, usize::MAX - items[index].size_bytes)
    });
    order
}

/// As an allocator would do at run time.
fn in_time(items: &[Item], fit: Fit) -> Placement {
    let mut occupied = Occupied::default();
    let mut offsets = vec![0; items.len()];
    for index in by_birth(items) {
        let item = &items[index];
        occupied.release(item.start);
        offsets[index] = occupied.lowest(item.size_bytes, fit);
        occupied.insert(offsets[index], item);
    }
    Placement::new(items, offsets)
}

/// As an allocator that knows the future: what lives long is put at the bottom, what lives shortly at the top of the bound.
fn two_ended(items: &[Item], bound: usize) -> Placement {
    let mut lengths: Vec<usize> = items.iter().map(|item| item.end - item.start).collect();
    lengths.sort_unstable();
    let short = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    let mut occupied = Occupied::default();
    let mut offsets = vec![0; items.len()];
    for index in by_birth(items) {
        let item = &items[index];
        occupied.release(item.start);
        offsets[index] = match item.end - item.start < short {
            true => occupied.highest(item.size_bytes, aligned(bound)),
            false => occupied.lowest(item.size_bytes, Fit::First),
        };
        occupied.insert(offsets[index], item);
    }
    Placement::new(items, offsets)
}

/// Items in descending order of a key, each at the lowest offset that is free during all of its life.
fn in_order<K: Ord>(items: &[Item], key: impl Fn(&Item) -> K) -> Placement {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(key(&items[index])));
    let mut offsets = vec![0; items.len()];
    // Placed items by offset.
    let mut placed: Vec<(usize, usize)> = vec![];
    for index in order {
        let item = &items[index];
        let mut end = 0;
        for &(offset, other) in placed.iter().filter(|(_, other)| items[*other].meets(item)) {
            if offset >= end + item.size_bytes {
                break;
            }
            end = end.max(offset + items[other].size_bytes);
        }
        offsets[index] = end;
        let at = placed.partition_point(|(offset, _)| *offset < end);
        placed.insert(at, (end, index));
    }
    Placement::new(items, offsets)
}
