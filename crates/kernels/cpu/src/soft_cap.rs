//! Soft caps: `y = cap tanh(x / cap)`, and its gradient `dx = dy (1 - (y / cap)^2)` (Gemma Team 2024, arXiv 2408.00118,
//! section 2).

use crate::lanes::{Kernel, Lanes, for_each_block};
use crate::math::tanh;
use crate::view::{MatMut, MatRef};

/// A cap, in all lanes.
#[derive(Clone, Copy)]
pub(crate) struct Cap<L> {
    cap: L,
    reciprocal: L,
}

impl<L: Lanes> Cap<L> {
    #[inline(always)]
    pub(crate) fn new(cap: f32) -> Cap<L> {
        Cap { cap: L::splat(cap), reciprocal: L::splat(1.0 / cap) }
    }

    /// `cap tanh(x / cap)`
    #[inline(always)]
    pub(crate) fn capped(self, x: L) -> L {
        self.cap * tanh(x * self.reciprocal)
    }

    /// The slope where the output is `y`.
    #[inline(always)]
    pub(crate) fn slope(self, y: L) -> L {
        let share = y * self.reciprocal;
        (-share).mul_add(share, L::splat(1.0))
    }
}

/// `x[R,C]` capped in place.
pub struct SoftCap<'a> {
    /// `[R,C]`
    pub x: MatMut<'a>,
    pub cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let cap = Cap::<L>::new(self.cap);
        for row in 0..self.x.rows() {
            let x = self.x.row_mut(row);
            for_each_block(
                x.len(),
                #[inline(always)]
                |block| block.store(x, cap.capped(block.load(x))),
            );
        }
    }
}

/// `gradient[R,C]`, that of the capped `y[R,C]`, becomes that of what was capped.
pub struct SoftCapBackward<'a> {
    /// `[R,C]`
    pub y: MatRef<'a>,
    pub cap: f32,
    /// `[R,C]`
    pub gradient: MatMut<'a>,
}

impl Kernel for SoftCapBackward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let cap = Cap::<L>::new(self.cap);
        for row in 0..self.y.rows() {
            let (y, gradient) = (self.y.row(row), self.gradient.row_mut(row));
            for_each_block(
                y.len(),
                #[inline(always)]
                |block| {
                    let slope = cap.slope(block.load::<L>(y));
                    block.store(gradient, block.load::<L>(gradient) * slope);
                },
            );
        }
    }
}
