//! Sums over rows: the gradient of a bias.

use std::marker::PhantomData;
use std::ops::Range;

use crate::lanes::{Block, Kernel, Lanes, OnTile, Stored, for_each_tile};
use crate::view::MatRef;

/// Rows whose sum starts from zero before it is added to the output: short chains keep rounding errors small.
pub const GROUP_ROWS: usize = 32;

/// `out[N] += sum over rows of x[T,N]`.
///
/// Order: a group of [`GROUP_ROWS`] rows is summed from zero in ascending order; groups are added in ascending order.
pub struct ColumnSum<'a, E = f32> {
    /// `[T, N]`
    pub x: MatRef<'a, E>,
    /// `[N]`, accumulated.
    pub out: &'a mut [f32],
}

impl<E: Stored> Kernel for ColumnSum<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        assert_eq!(self.x.cols(), self.out.len(), "one sum per column");
        for rows in groups(self.x.rows()) {
            let mut group = Group { rows, x: self.x, out: &mut *self.out, lanes: PhantomData::<L> };
            for_each_tile(self.x.cols(), &mut group);
        }
    }
}

/// Consecutive rows whose sum starts from zero.
pub(crate) fn groups(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(GROUP_ROWS).map(move |first| first..rows.min(first + GROUP_ROWS))
}

struct Group<'a, L, E> {
    rows: Range<usize>,
    x: MatRef<'a, E>,
    out: &'a mut [f32],
    lanes: PhantomData<L>,
}

impl<L: Lanes, E: Stored> OnTile for Group<'_, L, E> {
    #[inline(always)]
    fn visit<const N: usize>(&mut self, blocks: [Block; N]) {
        let mut sums = [L::zero(); N];
        for row in self.rows.clone() {
            let x = self.x.row(row);
            for (sum, block) in sums.iter_mut().zip(blocks) {
                *sum = *sum + block.load(x);
            }
        }
        for (sum, block) in sums.into_iter().zip(blocks) {
            block.store(self.out, block.load::<L>(self.out) + sum);
        }
    }
}
