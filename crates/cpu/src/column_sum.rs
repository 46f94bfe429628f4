//! Sums over rows: the gradient of a bias.

use crate::lanes::{Kernel, Lanes, for_each_block};
use crate::view::MatRef;

/// Rows whose sum starts from zero before it is added to the output: short chains keep rounding errors small.
pub const GROUP_ROWS: usize = 32;

/// `out[N] += sum over rows of x[T,N]`.
///
/// Order: a group of [`GROUP_ROWS`] rows is summed from zero in ascending order; groups are added in ascending order.
pub struct ColumnSum<'a> {
    /// `[T, N]`
    pub x: MatRef<'a>,
    /// `[N]`, accumulated.
    pub out: &'a mut [f32],
}

impl Kernel for ColumnSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let rows = self.x.rows();
        assert_eq!(self.x.cols(), self.out.len(), "one sum per column");
        for first in (0..rows).step_by(GROUP_ROWS) {
            let last = rows.min(first + GROUP_ROWS);
            for_each_block(
                self.out.len(),
                #[inline(always)]
                |block| {
                    let mut sum = L::zero();
                    for row in first..last {
                        sum = sum + block.load::<L>(self.x.row(row));
                    }
                    block.store(self.out, block.load::<L>(self.out) + sum);
                },
            );
        }
    }
}
