//! Shares of an operation that threads compute.

use std::ops::Range;

use device::Op;

/// One of several shares of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) index: usize,
    /// The number of shares.
    pub(crate) number: usize,
}

impl Share {
    /// This share of `0..len`, cut at multiples of `grain`, as equal as that allows; `None` where there are more shares
    /// than grains and this one is empty.
    pub(crate) fn of(self, len: usize, grain: usize) -> Option<Range<usize>> {
        let grains = len.div_ceil(grain);
        let border = |index: usize| (grains * index / self.number * grain).min(len);
        let range = border(self.index)..border(self.index + 1);
        (!range.is_empty()).then_some(range)
    }

    /// All of what is not cut goes to the first.
    pub(crate) fn whole(self, op: &Op) -> Option<Op> {
        (self.index == 0).then_some(*op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_are_cut_at_grains() {
        for (len, grain, number) in [(101, 1, 3), (100, 16, 7), (5, 64, 4), (0, 1, 2), (4096, 4096, 2)] {
            let shares: Vec<_> = (0..number).filter_map(|index| Share { index, number }.of(len, grain)).collect();
            let borders: Vec<usize> = shares.iter().flat_map(|share| [share.start, share.end]).collect();
            let inner = borders.get(1..borders.len().max(1) - 1).unwrap_or_default();
            assert!(inner.iter().all(|border| border % grain == 0), "{shares:?}");
            assert_eq!(shares.into_iter().flatten().collect::<Vec<_>>(), (0..len).collect::<Vec<_>>());
        }
    }
}
