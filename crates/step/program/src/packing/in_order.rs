//! Placing items in a given order, each at the lowest offset that is free during all of its life.

use super::{Item, Packing};

/// Places items in `order`.
pub(super) fn in_order(items: &[Item], order: &[usize]) -> Packing {
    let mut offsets = vec![0; items.len()];
    let mut placed = Lives::default();
    let mut meeting: Vec<(usize, usize)> = vec![];
    for &index in order {
        let item = &items[index];
        meeting.clear();
        placed.meeting(item, |other| {
            meeting.push((offsets[other], offsets[other] + items[other].size_bytes));
        });
        meeting.sort_unstable();
        let mut offset = 0;
        for &(start, end) in &meeting {
            if start >= offset + item.size_bytes {
                break;
            }
            offset = offset.max(end);
        }
        offsets[index] = offset;
        placed.insert(index, item);
    }
    Packing::new(items, offsets)
}

/// Items by time: level `k` has those that live for less than `2^k` instructions, in buckets of that width by their
/// start.
#[derive(Default)]
struct Lives {
    levels: Vec<Vec<Vec<(Item, usize)>>>,
}

impl Lives {
    fn insert(&mut self, index: usize, item: &Item) {
        let level = item.length().checked_ilog2().map_or(0, |log| log as usize + 1);
        grow(&mut self.levels, level + 1);
        let bucket = item.start >> level;
        grow(&mut self.levels[level], bucket + 1);
        self.levels[level][bucket].push((*item, index));
    }

    /// Calls `found` with each item that is alive together with `item`.
    fn meeting(&self, item: &Item, mut found: impl FnMut(usize)) {
        for (level, buckets) in self.levels.iter().enumerate() {
            // An item of this level that reaches into `item` starts at most one bucket earlier.
            let first = (item.start >> level).saturating_sub(1);
            let end = (item.end >> level).saturating_add(1).min(buckets.len());
            for (other, index) in buckets.get(first..end).unwrap_or(&[]).iter().flatten() {
                if other.meets(item) {
                    found(*index);
                }
            }
        }
    }
}

fn grow<T: Default>(list: &mut Vec<T>, len: usize) {
    if list.len() < len {
        list.resize_with(len, T::default);
    }
}
