//! Placing items in order of their births, as an allocator does at run time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Item, Packing};

/// Which gap is taken.
#[derive(Clone, Copy)]
pub(super) enum Fit {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough.
    Best,
}

/// Everything that is placed at one time, as the gaps between it: a gap is between two blocks, or before the first.
#[derive(Default)]
struct Occupied {
    /// Offset and past the end.
    gaps: BTreeMap<usize, usize>,
    /// Size and offset of each gap.
    by_size: BTreeSet<(usize, usize)>,
    /// Past the last block.
    end: usize,
    /// Offset and past the end of each block, by the end of its life.
    deaths: BTreeMap<usize, Vec<(usize, usize)>>,
}

impl Occupied {
    fn release(&mut self, now: usize) {
        while let Some(first) = self.deaths.first_entry().filter(|first| *first.key() <= now) {
            for (start, end) in first.remove() {
                self.free(start, end);
            }
        }
    }

    /// Joins what was `start..end` with the gaps next to it.
    fn free(&mut self, mut start: usize, mut end: usize) {
        if let Some((&before, _)) = self.gaps.range(..start).next_back().filter(|(_, gap_end)| **gap_end == start) {
            self.remove_gap(before);
            start = before;
        }
        if let Some(after) = self.remove_gap(end) {
            end = after;
        }
        if end == self.end {
            self.end = start;
        } else {
            self.add_gap(start, end);
        }
    }

    fn add_gap(&mut self, start: usize, end: usize) {
        self.gaps.insert(start, end);
        self.by_size.insert((end - start, start));
    }

    /// The end of the gap that was at `start`, if there was one.
    fn remove_gap(&mut self, start: usize) -> Option<usize> {
        let end = self.gaps.remove(&start)?;
        self.by_size.remove(&(end - start, start));
        Some(end)
    }

    /// Places an item in the gap at `offset`, or past the last block.
    fn insert(&mut self, offset: usize, item: &Item) {
        let end = offset + item.size_bytes;
        if item.size_bytes == 0 {
            return;
        }
        match self.remove_gap(offset) {
            Some(gap_end) if gap_end > end => self.add_gap(end, gap_end),
            Some(_) => {}
            None => self.end = end,
        }
        self.deaths.entry(item.end).or_default().push((offset, end));
    }

    /// Offset of a gap of at least `size`; past all blocks if there is none.
    fn lowest(&self, size: usize, fit: Fit) -> usize {
        let gap = match fit {
            Fit::First => self.gaps.iter().find(|(start, end)| *end - *start >= size).map(|(start, _)| *start),
            Fit::Best => self.by_size.range((size, 0)..).next().map(|(_, start)| *start),
        };
        gap.unwrap_or(self.end)
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
