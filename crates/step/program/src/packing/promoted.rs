//! Placing items again and again in order, each time with those first that ended too high the last time: what is hard
//! to place comes to the front, and what is easy fills the gaps.

use super::in_order::in_order;
use super::{Item, Packing};

/// No more rounds than this: the first few bring most.
const MAX_ROUNDS: usize = 16;

/// Items that end above `limit` bytes are promoted, until no more than `enough` are needed.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    pub(super) limit: usize,
    pub(super) enough: usize,
}

/// The best of several rounds that begin with `order`, at least one.
pub(super) fn promoted(items: &[Item], mut order: Vec<usize>, goal: Goal, rounds: usize) -> Packing {
    let mut best = in_order(items, &order);
    let mut last = best.clone();
    for _ in 1..rounds.min(MAX_ROUNDS) {
        if best.height_bytes <= goal.enough {
            break;
        }
        // A stable sort: among those promoted, and among the others, the order remains.
        order.sort_by_key(|&index| last.offsets[index] + items[index].size_bytes <= goal.limit);
        last = in_order(items, &order);
        if last.height_bytes < best.height_bytes {
            best = last.clone();
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the given order the third item is above the first two for lack of room between them; at the front it has the
    /// ground.
    #[test]
    fn what_ends_too_high_is_placed_first() {
        let item = |start, end, size_bytes| Item { start, end, size_bytes };
        let items = [item(3, 7, 3), item(1, 4, 2), item(1, 3, 4), item(1, 4, 2)];
        let order: Vec<usize> = (0..items.len()).collect();
        assert_eq!(in_order(&items, &order).height_bytes, 11);
        let enough = crate::packing::largest_live_bytes(&items);
        let goal = Goal { limit: enough, enough };
        assert_eq!((promoted(&items, order, goal, 2).height_bytes, enough), (8, 8));
    }
}
