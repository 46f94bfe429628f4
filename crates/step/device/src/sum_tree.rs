//! The order in which a sum over the members of a group adds.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;

/// How many neighbouring members of a group a sum adds first.
///
/// The members are cut into runs of that many, in rank order; the last run may be shorter. The sum of a run is taken in
/// rank order, and then the sums of the runs, in their order: with runs of 2, `((x0 + x1) + (x2 + x3)) + x4`. Runs of
/// 1, and one run of all members, are rank order: `(((x0 + x1) + x2) + x3) + x4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SumTree {
    run: NonZeroUsize,
}

impl SumTree {
    /// All members one after the other.
    pub const RANK_ORDER: SumTree = SumTree { run: NonZeroUsize::MIN };

    /// Runs of `run` members.
    pub const fn of_runs(run: NonZeroUsize) -> SumTree {
        SumTree { run }
    }

    /// The members of a run in a group of `members`, if its sum is not in rank order anyway.
    pub fn run_in(self, members: usize) -> Option<NonZeroUsize> {
        (self.run > NonZeroUsize::MIN && self.run.get() < members).then_some(self.run)
    }

    /// The positions of each run in a group of `members`, in order. One run where the sum is in rank order.
    pub fn runs(self, members: usize) -> impl Iterator<Item = Range<usize>> {
        let run = self.run_in(members).map_or(members.max(1), NonZeroUsize::get);
        (0..members).step_by(run).map(move |first| first..members.min(first + run))
    }
}

impl fmt::Display for SumTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SumTree::RANK_ORDER => f.write_str("rank order"),
            SumTree { run } => write!(f, "runs of {run}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(run: usize) -> SumTree {
        SumTree::of_runs(NonZeroUsize::new(run).expect("not 0"))
    }

    #[test]
    fn runs_cover_the_group_and_the_last_may_be_shorter() {
        let runs = |run, members| tree(run).runs(members).map(|run| run.len()).collect::<Vec<_>>();
        assert_eq!(runs(2, 5), [2, 2, 1]);
        assert_eq!(runs(3, 9), [3, 3, 3]);
        assert_eq!([runs(1, 5), runs(5, 5), runs(8, 5)], [[5], [5], [5]], "rank order");
        assert_eq!(runs(4, 1), [1]);
    }

    #[test]
    fn a_tree_is_named_by_its_runs() {
        assert_eq!([tree(1), tree(4)].map(|tree| tree.to_string()), ["rank order", "runs of 4"]);
    }
}
