//! `into = keep * into + factor * x`.

use crate::lanes::{Kernel, Lanes, for_each_block};
use crate::view::{MatMut, MatRef};

/// `into[R,C] = keep * into + factor * x[R,C]`: the product with `factor` is rounded, then the sum once. With `keep` 0
/// it is assigned, whatever memory holds.
pub struct ScaledSum<'a> {
    /// `[R, C]`
    pub x: MatRef<'a>,
    /// Factor of `x`.
    pub factor: f32,
    /// `[R, C]`
    pub into: MatMut<'a>,
    /// Factor of `into`.
    pub keep: f32,
}

impl Kernel for ScaledSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_eq!((self.x.rows(), self.x.cols()), (self.into.rows(), self.into.cols()), "matrices of one shape");
        let (keep, factor) = (L::splat(self.keep), L::splat(self.factor));
        for row in 0..self.x.rows() {
            let (x, into) = (self.x.row(row), self.into.row_mut(row));
            if self.keep == 0.0 {
                for_each_block(
                    x.len(),
                    #[inline(always)]
                    |block| block.store(into, block.load::<L>(x) * factor),
                );
            } else {
                for_each_block(
                    x.len(),
                    #[inline(always)]
                    |block| {
                        let term = block.load::<L>(x) * factor;
                        block.store(into, block.load::<L>(into).mul_add(keep, term));
                    },
                );
            }
        }
    }
}
