//! `into += x`.

use crate::lanes::{Kernel, Lanes, Stored, for_each_block};
use crate::view::{MatMut, MatRef};

/// `into[R,C] += x[R,C]`.
pub struct Accumulate<'a> {
    /// `[R, C]`
    pub x: MatRef<'a>,
    /// `[R, C]`, accumulated.
    pub into: MatMut<'a>,
}

impl Kernel for Accumulate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_eq!((self.x.rows(), self.x.cols()), (self.into.rows(), self.into.cols()), "matrices of one shape");
        for row in 0..self.x.rows() {
            add_row::<L>(self.x.row(row), self.into.row_mut(row));
        }
    }
}

/// `into += x` for whole numbers, modulo 2^64 as between ranks.
pub fn add_integers(x: &[i64], into: &mut [i64]) {
    assert_eq!(x.len(), into.len(), "as many terms as sums");
    for (sum, term) in into.iter_mut().zip(x) {
        *sum = sum.wrapping_add(*term);
    }
}

/// `into += x` for one row.
#[inline(always)]
pub(crate) fn add_row<L: Lanes>(x: &[impl Stored], into: &mut [impl Stored]) {
    assert_eq!(x.len(), into.len(), "rows of one length");
    for_each_block(
        x.len(),
        #[inline(always)]
        |block| block.store(into, block.load::<L>(into) + block.load::<L>(x)),
    );
}

/// `into += scale * x` for one row: one fused multiply-add per element, so that a scale of 1 adds `x` to the bit.
#[inline(always)]
pub(crate) fn add_scaled_row<L: Lanes>(x: &[impl Stored], scale: f32, into: &mut [f32]) {
    assert_eq!(x.len(), into.len(), "rows of one length");
    let scale = L::splat(scale);
    for_each_block(
        x.len(),
        #[inline(always)]
        |block| block.store(into, block.load::<L>(x).mul_add(scale, block.load::<L>(into))),
    );
}
