//! Double precision rounded down, up or toward zero.
//!
//! The exact result is computed as a whole number with a bit for what is left over, and rounded once.

use super::exact::{Exact, F64};
use crate::code::{NumberOp, Rounding};

/// The result of an operation in a direction; `None` for those that do not round.
#[inline(never)]
pub fn double(op: NumberOp, rounding: Rounding, a: u64, b: u64, c: u64) -> Option<u64> {
    let [x, y, z] = [a, b, c].map(f64::from_bits);
    match op {
        NumberOp::Add => Some(fused(x, 1.0, y, rounding)),
        NumberOp::Sub => Some(fused(x, 1.0, -y, rounding)),
        NumberOp::Multiply => Some(product(x, y, rounding)),
        NumberOp::Fused => Some(fused(x, y, z, rounding)),
        NumberOp::Divide => Some(quotient(x, y, rounding)),
        NumberOp::Reciprocal => Some(quotient(1.0, x, rounding)),
        NumberOp::SquareRoot => Some(root(x, rounding)),
        NumberOp::FusedRelu
        | NumberOp::Min
        | NumberOp::Max
        | NumberOp::MinNaN
        | NumberOp::MaxNaN
        | NumberOp::Absolute
        | NumberOp::Negate
        | NumberOp::CopySign => None,
    }
}

/// A positive number: `magnitude * 2^exponent`, the lowest bit set where something is left over.
#[derive(Clone, Copy)]
struct Long {
    magnitude: u128,
    exponent: i32,
}

impl Long {
    /// A finite number other than 0 with its highest bit at 52.
    fn of(value: f64) -> Long {
        let exact = F64.exact(value.abs().to_bits());
        let places = exact.magnitude.leading_zeros() as i32 - 11;
        Long { magnitude: u128::from(exact.magnitude << places), exponent: exact.exponent - places }
    }

    fn times(self, other: Long) -> Long {
        Long { magnitude: self.magnitude * other.magnitude, exponent: self.exponent + other.exponent }
    }

    /// The same number with its highest bit at `place` or below it by what it loses on the way.
    fn with_highest_at(self, place: u32) -> Long {
        let highest = self.magnitude.ilog2();
        if highest <= place {
            let places = place - highest;
            return Long { magnitude: self.magnitude << places, exponent: self.exponent - places as i32 };
        }
        self.shifted_right(highest - place)
    }

    fn shifted_right(self, places: u32) -> Long {
        let exponent = self.exponent + places as i32;
        if places >= 127 {
            return Long { magnitude: 1, exponent };
        }
        let lost = self.magnitude & ((1 << places) - 1) != 0;
        Long { magnitude: self.magnitude >> places | u128::from(lost), exponent }
    }

    fn rounded(self, is_negative: bool, rounding: Rounding) -> u64 {
        // 63 bits: more than the format has, and the last one tells what is left over.
        let Long { magnitude, exponent } = self.with_highest_at(62);
        F64.rounded(Exact { is_negative, magnitude: magnitude as u64, exponent, is_more: false }, rounding)
    }
}

/// The bits of a result that no direction changes.
fn exactly(value: f64) -> u64 {
    if value.is_nan() { F64.canonical_nan } else { value.to_bits() }
}

fn product(x: f64, y: f64, rounding: Rounding) -> u64 {
    if !x.is_finite() || !y.is_finite() || x == 0.0 || y == 0.0 {
        return exactly(x * y);
    }
    Long::of(x).times(Long::of(y)).rounded(x.is_sign_negative() != y.is_sign_negative(), rounding)
}

fn fused(x: f64, y: f64, z: f64, rounding: Rounding) -> u64 {
    if ![x, y, z].iter().all(|value| value.is_finite()) {
        // An infinite addend with a finite product that the nearest rounding makes infinite must not become a NaN.
        return exactly(if x.is_finite() && y.is_finite() { z } else { x.mul_add(y, z) });
    }
    let is_negative = x.is_sign_negative() != y.is_sign_negative();
    if x == 0.0 || y == 0.0 {
        let zero = if is_negative { -0.0 } else { 0.0 };
        let is_cancelled = z == 0.0 && z.is_sign_negative() != is_negative;
        return if is_cancelled { zero_of(rounding) } else { exactly(zero + z) };
    }
    if z == 0.0 {
        return product(x, y, rounding);
    }
    let product = (Long::of(x).times(Long::of(y)).with_highest_at(125), is_negative);
    let addend = (Long::of(z).with_highest_at(125), z.is_sign_negative());
    let is_product_greater = (product.0.exponent, product.0.magnitude) >= (addend.0.exponent, addend.0.magnitude);
    let ((great, sign), (small, small_sign)) = if is_product_greater { (product, addend) } else { (addend, product) };
    // Both have 20 zeros at their ends: what is lost is lost only where the difference keeps more bits than the format.
    let small = small.shifted_right(great.exponent.abs_diff(small.exponent));
    let magnitude =
        if sign == small_sign { great.magnitude + small.magnitude } else { great.magnitude - small.magnitude };
    if magnitude == 0 {
        return zero_of(rounding);
    }
    Long { magnitude, exponent: great.exponent }.rounded(sign, rounding)
}

/// The zero of two numbers that cancel.
fn zero_of(rounding: Rounding) -> u64 {
    if rounding == Rounding::Down { F64.sign() } else { 0 }
}

fn quotient(x: f64, y: f64, rounding: Rounding) -> u64 {
    if !x.is_finite() || !y.is_finite() || x == 0.0 || y == 0.0 {
        return exactly(x / y);
    }
    let (x_long, y_long) = (Long::of(x), Long::of(y));
    let dividend = x_long.magnitude << 64;
    let is_more = dividend % y_long.magnitude != 0;
    let magnitude = (dividend / y_long.magnitude) << 1 | u128::from(is_more);
    let exponent = x_long.exponent - y_long.exponent - 65;
    Long { magnitude, exponent }.rounded(x.is_sign_negative() != y.is_sign_negative(), rounding)
}

fn root(x: f64, rounding: Rounding) -> u64 {
    if !x.is_finite() || x <= 0.0 {
        return exactly(x.sqrt());
    }
    let Long { magnitude, exponent } = Long::of(x);
    // The exponent must be even.
    let places = 70 + (exponent & 1);
    let square = magnitude << places;
    let root = square.isqrt();
    let is_more = root * root != square;
    let magnitude = root << 1 | u128::from(is_more);
    Long { magnitude, exponent: (exponent - places) / 2 - 1 }.rounded(false, rounding)
}
