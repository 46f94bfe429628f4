//! Elementary functions of our own, so that results do not depend on a machine's mathematics library.
//!
//! Polynomials are minimax fits (Remez exchange, 200 bits, coefficients rounded to f32). Errors are measured
//! against f64 over dense samples in the tests, in units in the last place of the exact result.
//!
//! | function | range | largest error measured |
//! |---|---|---|
//! | [`exp`] | results from 2^-125 to the largest f32; smaller ones are zero | 0.97 ulp |
//! | [`power_of_depth`] | the same | 2^-18.4 of the result |
//! | [`log`] | all positive, subnormals too | 0.83 ulp |
//! | [`sigmoid`] | all | 2.5 ulp |
//! | [`tanh`] | all | 1.4 ulp |
//! | [`erf`] | all | 1.4 ulp |
//! | [`normal`] | cumulative and density of the normal distribution | 2e-7 absolute |

mod angle;
mod double;
mod error_function;

pub use angle::{sin_cos_f64, sin_cos_of_turn};
pub use double::{exp_f64, log_f64};
pub use error_function::{erf, normal};

use crate::lanes::Lanes;

const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
/// Results below 2^-125 are flushed to zero: they would only slow sums down.
const EXP_LOWEST: f32 = -86.643_394;
/// The largest argument whose exponential is finite.
const EXP_HIGHEST: f32 = 88.722_84;

/// `c[0] + c[1] x + c[2] x^2 + ...` by Horner's rule with fused multiply-adds.
#[inline(always)]
pub(crate) fn polynomial<L: Lanes, const N: usize>(x: L, coefficients: [f32; N]) -> L {
    let mut sum = L::splat(coefficients[N - 1]);
    let mut index = N - 1;
    while index > 0 {
        index -= 1;
        sum = sum.mul_add(x, L::splat(coefficients[index]));
    }
    sum
}

/// `e^x`; zero where it would be below 2^-125, infinite above 88.72, NaN of NaN.
#[inline(always)]
pub fn exp<L: Lanes>(x: L) -> L {
    let count = (x * L::splat(std::f32::consts::LOG2_E)).round();
    let rest = count.mul_add(L::splat(-LN2_HIGH), x);
    let rest = count.mul_add(L::splat(-LN2_LOW), rest);
    // e^r = 1 + r + r^2 P(r) on |r| <= ln(2) / 2, within 2^-28.
    let tail = polynomial(rest, [0.499_999_94, 0.166_665_15, 0.041_668_456, 0.008_369_419, 0.001_381_318]);
    let power = tail.mul_add(rest * rest, rest) + L::splat(1.0);
    let result = L::select(x.less(L::splat(EXP_LOWEST)), L::zero(), power.scaled(count));
    L::select(L::splat(EXP_HIGHEST).less(x), L::splat(f32::INFINITY), result)
}

/// The depth of 1, whose power of two is 1.
pub const NO_DEPTH: f32 = 1.0;
/// The largest depth whose power of two is not zero.
const DEEPEST: f32 = 126.0;

/// `2^(NO_DEPTH - depth)`; zero where it would be below 2^-125, infinite from 2^128 on, NaN of NaN.
///
/// For operands that are rounded to 16 bits next, with fewer operations than [`exp`].
#[inline(always)]
pub fn power_of_depth<L: Lanes>(depth: L) -> L {
    let x = -depth;
    let count = x.round();
    // 2^r on |r| <= 1/2, exactly 1 at 0, within 2^-18.4 of the result.
    let power = polynomial(x - count, [1.0, 0.693_124_2, 0.240_240_99, 0.055_906_426, 0.009_582_853]);
    let result = power.scaled(count + L::splat(NO_DEPTH));
    let result = L::select(L::splat(DEEPEST).less(depth), L::zero(), result);
    L::select(depth.less(L::splat(NO_DEPTH - 128.0)), L::splat(f32::INFINITY), result)
}

/// Natural logarithm; minus infinity of zero, NaN below zero.
#[inline(always)]
pub fn log<L: Lanes>(x: L) -> L {
    let is_small = x.less(L::splat(f32::MIN_POSITIVE));
    let normal = L::select(is_small, x * L::splat(8_388_608.0), x);
    let (significand, exponent) = normal.significand_and_exponent();
    let exponent = L::select(is_small, exponent - L::splat(23.0), exponent);
    // log(1 + f) = f - f^2/2 + f^3 P(f) on sqrt(1/2) - 1 <= f < sqrt(2) - 1, within 2^-30.
    let f = significand - L::splat(1.0);
    let square = f * f;
    let tail = polynomial(
        f,
        [
            0.333_333_13,
            -0.250_000_1,
            0.200_021_19,
            -0.166_679_96,
            0.142_195_52,
            -0.124_055_9,
            0.118_881_63,
            -0.116_756_506,
            0.067_466_38,
        ],
    );
    let correction = (tail * f * square) + exponent * L::splat(LN2_LOW);
    let correction = square.mul_add(L::splat(-0.5), correction);
    let result = exponent.mul_add(L::splat(LN2_HIGH), f + correction);
    let at_most_zero = L::select(x.less(L::zero()), L::splat(f32::NAN), L::splat(f32::NEG_INFINITY));
    let result = L::select(L::zero().less(x), result, at_most_zero);
    // Infinity and NaN are their own logarithms.
    L::select(x.less(L::splat(f32::INFINITY)), result, x)
}

/// `1 / (1 + e^-x)` and its complement `1 / (1 + e^x)`, both without cancellation.
#[inline(always)]
pub fn sigmoid_and_complement<L: Lanes>(x: L) -> (L, L) {
    // The bound keeps the exponential finite; `min` returns its second operand for a NaN, which must stay one.
    let power = exp(L::splat(80.0).min(-x));
    let sigmoid = L::splat(1.0) / (L::splat(1.0) + power);
    (sigmoid, power * sigmoid)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<L: Lanes>(x: L) -> L {
    sigmoid_and_complement(x).0
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<L: Lanes>(x: L) -> L {
    let square = x * x;
    // tanh(x) = x + x^3 P(x^2) on |x| <= 0.625, within 2^-27.
    let tail = polynomial(square, [-0.333_332_8, 0.133_314_42, -0.053_739_72, 0.020_639_1, -0.005_704_998]);
    let small = (tail * square).mul_add(x, x);
    let magnitude = x.abs();
    let power = exp(magnitude + magnitude) + L::splat(1.0);
    let large = (L::splat(1.0) - L::splat(2.0) / power).copysign(x);
    L::select(magnitude.less(L::splat(0.625)), small, large)
}

#[cfg(test)]
mod tests;
