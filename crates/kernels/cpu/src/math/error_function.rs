//! The error function and the normal distribution.

use super::{exp, polynomial};
use crate::lanes::Lanes;

/// `erfc(a)` for `a >= 0`, given `e^(-a^2)`.
///
/// `erfc(a) = e^(-a^2) t Q(t)` with `t = 1 / (1 + 0.4 a)`: the scaled function is smooth in `t`, so one
/// polynomial holds its relative error below 2^-27 up to a = 9.5, where erfc leaves the f32 range.
#[inline(always)]
fn complement<L: Lanes>(magnitude: L, power: L) -> L {
    let t = L::splat(1.0) / magnitude.mul_add(L::splat(0.4), L::splat(1.0));
    let scaled = polynomial(
        t,
        [
            0.225_710_66,
            0.224_880_07,
            0.215_510_68,
            0.126_945_11,
            0.279_909_6,
            -0.298_869_64,
            0.564_757_1,
            -0.511_723_6,
            0.203_475_37,
            -0.030_595_362,
        ],
    );
    power * (t * scaled)
}

/// The error function.
#[inline(always)]
pub fn erf<L: Lanes>(x: L) -> L {
    let square = x * x;
    // erf(x) = x + x P(x^2) on |x| <= 1, within 2^-29.
    let tail = polynomial(
        square,
        [0.128_379_17, -0.376_126_26, 0.112_835_854, -0.026_853_81, 0.005_188_327, -0.000_801_018_96, 7.853_848e-5],
    );
    let small = tail.mul_add(x, x);
    let magnitude = x.abs();
    let large = (L::splat(1.0) - complement(magnitude, exp(-square))).copysign(x);
    L::select(magnitude.less(L::splat(1.0)), small, large)
}

/// The normal distribution at `x`: `(P(X <= x), density)`. The lower tail is accurate relative to itself.
#[inline(always)]
pub fn normal<L: Lanes>(x: L) -> (L, L) {
    let power = exp(x * x * L::splat(-0.5));
    let magnitude = x.abs() * L::splat(std::f32::consts::FRAC_1_SQRT_2);
    let tail = complement(magnitude, power) * L::splat(0.5);
    let cumulative = L::select(x.less(L::zero()), tail, L::splat(1.0) - tail);
    let inverse_root_two_pi = 0.398_942_3;
    (cumulative, power * L::splat(inverse_root_two_pi))
}
