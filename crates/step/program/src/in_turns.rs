//! Ranks that wait for each other, run one after the other on one thread.

use std::mem;

/// Calls `step(rank)` for each of `num_ranks` ranks in turn, each until it returns `false`, and starts again until no
/// rank advances. `step` advances a rank by one event, or returns `false` where the rank has ended or waits for another
/// one.
///
/// The order decides no result where an event depends only on the events that it waits for.
pub fn run_in_turns(num_ranks: usize, mut step: impl FnMut(usize) -> bool) {
    let mut advanced = true;
    while mem::take(&mut advanced) {
        for rank in 0..num_ranks {
            while step(rank) {
                advanced = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 0 waits for rank 1, which waits for rank 2; rank 3 waits for ever.
    #[test]
    fn ranks_run_until_none_advances() {
        let (mut done, mut order) = ([0; 4], vec![]);
        run_in_turns(4, |rank| {
            let may = done[rank] < 2 && if rank < 2 { done[rank] < done[rank + 1] } else { rank == 2 };
            if may {
                done[rank] += 1;
                order.push(rank);
            }
            may
        });
        assert_eq!(order, [2, 2, 1, 1, 0, 0]);
    }
}
