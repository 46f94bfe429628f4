//! Placing items in order of their births, as an allocator does at run time.

use super::{Item, Packing};

/// Which gap is taken.
#[derive(Clone, Copy)]
pub(super) enum Fit {
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
    /// No block dies before.
    next_death: usize,
}

impl Occupied {
    fn release(&mut self, now: usize) {
        if self.next_death <= now {
            self.blocks.retain(|(_, _, death)| *death > now);
            self.next_death = self.blocks.iter().map(|(_, _, death)| *death).min().unwrap_or(usize::MAX);
        }
    }

    fn insert(&mut self, offset: usize, item: &Item) {
        let at = self.blocks.partition_point(|(start, _, _)| *start < offset);
        self.blocks.insert(at, (offset, offset + item.size_bytes, item.end));
        self.next_death = self.next_death.min(item.end);
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
}

/// Items in order of their births, larger ones first.
fn by_birth(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&index| {
        (items[index].start, usize::MAX - items[index].end, usize::MAX - items[index].size_bytes)
    });
    order
}

/// Like an allocator at run time.
pub(super) fn in_time(items: &[Item], fit: Fit) -> Packing {
    let mut occupied = Occupied::default();
    let mut offsets = vec![0; items.len()];
    for index in by_birth(items) {
        let item = &items[index];
        occupied.release(item.start);
        offsets[index] = occupied.lowest(item.size_bytes, fit);
        occupied.insert(offsets[index], item);
    }
    Packing::new(items, offsets)
}
