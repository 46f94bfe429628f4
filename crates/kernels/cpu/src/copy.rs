//! Copies between matrices whose rows are differently or that hold numbers of another type.

use crate::lanes::{Kernel, Lanes, Stored, for_each_block};
use crate::view::{MatMut, MatRef};

/// `to[R,C] = from[R,C]`, assigned; a number that `to` cannot hold is rounded once.
pub struct Copy<'a, F = f32, T = f32> {
    /// `[R, C]`
    pub from: MatRef<'a, F>,
    /// `[R, C]`
    pub to: MatMut<'a, T>,
}

impl<F: Stored, T: Stored> Kernel for Copy<'_, F, T> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_eq!((self.from.rows(), self.from.cols()), (self.to.rows(), self.to.cols()), "matrices of one shape");
        for row in 0..self.from.rows() {
            let (from, to) = (self.from.row(row), self.to.row_mut(row));
            for_each_block(
                from.len(),
                #[inline(always)]
                |block| block.store(to, block.load::<L>(from)),
            );
        }
    }
}
