//! Placing items again and again in order, each time with one of the topmost moved to an earlier place, as long as that does no harm.

use super::in_order::in_order;
use super::{Item, Placement};

/// Placements of this many items are tried in all.
const MAX_PLACED: usize = 200_000;
/// No more rounds than this.
const MAX_ROUNDS: usize = 1000;

/// The result of a walk from `order`; ends when it needs at most `enough` bytes. The walk is the same every time.
pub(super) fn moved(items: &[Item], mut order: Vec<usize>, enough: usize) -> Placement {
    let mut best = in_order(items, &order);
    let mut random = Random(1);
    for _ in 1..(MAX_PLACED / items.len().max(1)).min(MAX_ROUNDS) {
        if best.height_bytes <= enough {
            break;
        }
        // What ends in the upper half of what is too much.
        let too_high = best.height_bytes - (best.height_bytes - enough) / 2;
        let is_top = |place: &usize| best.offsets[order[*place]] + items[order[*place]].size_bytes >= too_high;
        let tops: Vec<usize> = (0..order.len()).filter(is_top).collect();
        let Some(&from) = tops.get(random.below(tops.len())) else { break };
        let to = random.below(from + 1);
        order[to..=from].rotate_right(1);
        let next = in_order(items, &order);
        if next.height_bytes <= best.height_bytes {
            best = next;
        } else {
            order[to..=from].rotate_left(1);
        }
    }
    best
}

/// Xorshift with 64 bits (Marsaglia): any sequence that does not repeat itself soon would do.
struct Random(u64);

impl Random {
    /// Below `bound`; 0 where that is 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound.max(1)
    }
}
