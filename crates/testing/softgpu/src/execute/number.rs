//! Floating-point numbers of single and double precision.

use super::directed;
use super::exact::{F32, F64, odd_quotient, odd_root, odd_sum};
use super::narrow;
use super::registers::{Lanes, Registers};
use crate::code::{Number, NumberFormat, NumberOp, Rounding, Row};

/// Runs an operation of floating-point numbers.
#[inline(always)]
pub fn number(registers: &mut Registers, lanes: Lanes, number: Number, to: Row, from: [Row; 3]) {
    let from = [from[0], from[1], from[2], from[2]];
    let is_plain = number.rounding == Rounding::Nearest && !number.flushes && !number.saturates;
    match number.format {
        NumberFormat::F32 if is_plain => single(registers, lanes, number.op, to, from),
        NumberFormat::F32 => registers.small_of(lanes, to, from, |a, b, c, _| directed_single(number, a, b, c)),
        NumberFormat::F64 if is_plain => double(registers, lanes, number.op, to, from),
        // The decoder lets no direction through where nothing is rounded.
        NumberFormat::F64 => registers.wide_of(lanes, to, from, |a, b, c, _| {
            directed::double(number.op, number.rounding, a, b, c).unwrap_or(F64.canonical_nan)
        }),
        NumberFormat::F16 | NumberFormat::Bf16 | NumberFormat::F16x2 | NumberFormat::Bf16x2 => {
            registers.small_of(lanes, to, from, |a, b, c, _| narrow::number(number, a, b, c));
        }
    }
}

macro_rules! lanes_of_numbers {
    ($name:ident, $each:ident, $float:ty, $word:ty, $nan:expr) => {
        #[inline(always)]
        fn $name(registers: &mut Registers, lanes: Lanes, op: NumberOp, to: Row, from: [Row; 4]) {
            const SIGN: $word = 1 << (<$word>::BITS - 1);
            const NAN: $word = $nan;
            const INFINITY: $word = <$float>::INFINITY.to_bits();
            macro_rules! each {
                ($f:expr) => {
                    registers.$each(lanes, to, from, |a, b, c, _| {
                        let f: fn($float, $float, $float) -> $float = $f;
                        let result = f(<$float>::from_bits(a), <$float>::from_bits(b), <$float>::from_bits(c));
                        // Without a branch, so that lanes are computed together.
                        let bits = result.to_bits();
                        let is_nan = (0 as $word).wrapping_sub(<$word>::from(bits & !SIGN > INFINITY));
                        NAN & is_nan | bits & !is_nan
                    })
                };
            }
            match op {
                NumberOp::Add => each!(|a, b, _| a + b),
                NumberOp::Sub => each!(|a, b, _| a - b),
                NumberOp::Multiply => each!(|a, b, _| a * b),
                NumberOp::Fused => each!(|a, b, c| a.mul_add(b, c)),
                NumberOp::FusedRelu => each!(|a, b, c| {
                    let sum = a.mul_add(b, c);
                    if sum < 0.0 { 0.0 } else { sum }
                }),
                NumberOp::Divide => each!(|a, b, _| a / b),
                NumberOp::SquareRoot => each!(|a, _, _| a.sqrt()),
                NumberOp::Reciprocal => each!(|a, _, _| 1.0 / a),
                NumberOp::Min => each!(|a, b, _| {
                    let is_first = a < b || a == b && a.is_sign_negative() || b.is_nan();
                    if is_first { a } else { b }
                }),
                NumberOp::Max => each!(|a, b, _| {
                    let is_first = a > b || a == b && a.is_sign_positive() || b.is_nan();
                    if is_first { a } else { b }
                }),
                NumberOp::MinNaN => each!(|a, b, _| {
                    let is_first = a < b || a == b && a.is_sign_negative() || a.is_nan();
                    if is_first { a } else { b }
                }),
                NumberOp::MaxNaN => each!(|a, b, _| {
                    let is_first = a > b || a == b && a.is_sign_positive() || a.is_nan();
                    if is_first { a } else { b }
                }),
                NumberOp::Absolute => registers.$each(lanes, to, from, |a, _, _, _| a & !SIGN),
                NumberOp::Negate => registers.$each(lanes, to, from, |a, _, _, _| a ^ SIGN),
                NumberOp::CopySign => registers.$each(lanes, to, from, |a, b, _, _| a & SIGN | b & !SIGN),
            }
        }
    };
}

lanes_of_numbers!(single, small_of, f32, u32, 0x7fff_ffff);
lanes_of_numbers!(double, wide_of, f64, u64, 0xfff8_0000_0000_0000);

/// Single precision in any direction, with flushed subnormal numbers and results held to 0..=1 where asked for.
fn directed_single(number: Number, a: u32, b: u32, c: u32) -> u32 {
    let [a, b, c] = [a, b, c].map(|bits| if number.flushes { F32.flushed(u64::from(bits)) as u32 } else { bits });
    let [x, y, z] = [a, b, c].map(|bits| f64::from(f32::from_bits(bits)));
    let exact = match number.op {
        NumberOp::Add => sum(x, y, number.rounding),
        NumberOp::Sub => sum(x, -y, number.rounding),
        NumberOp::Multiply => x * y,
        NumberOp::Fused => sum(x * y, z, number.rounding),
        NumberOp::FusedRelu => sum(x * y, z, number.rounding).max(0.0),
        NumberOp::Divide => odd_quotient(x, y),
        NumberOp::SquareRoot => odd_root(x),
        NumberOp::Reciprocal => odd_quotient(1.0, x),
        NumberOp::Min | NumberOp::MinNaN | NumberOp::Max | NumberOp::MaxNaN => {
            chosen(number.op, f32::from_bits(a), f32::from_bits(b)).into()
        }
        NumberOp::Absolute => return a & 0x7fff_ffff,
        NumberOp::Negate => return a ^ 0x8000_0000,
        NumberOp::CopySign => return a & 0x8000_0000 | b & 0x7fff_ffff,
    };
    let mut bits = F32.of_f64(exact, number.rounding);
    if number.flushes {
        bits = F32.flushed(bits);
    }
    if number.saturates { saturated(f32::from_bits(bits as u32)).to_bits() } else { bits as u32 }
}

/// The sum, rounded to odd; an exact zero has the sign that the direction gives it.
pub fn sum(a: f64, b: f64, rounding: Rounding) -> f64 {
    let sum = odd_sum(a, b);
    let is_cancelled = sum == 0.0 && a.is_sign_negative() != b.is_sign_negative();
    if is_cancelled && rounding == Rounding::Down { -0.0 } else { sum }
}

/// The lesser or greater of two; -0 is less than +0.
pub fn chosen(op: NumberOp, a: f32, b: f32) -> f32 {
    let is_nan_wanted = matches!(op, NumberOp::MinNaN | NumberOp::MaxNaN);
    if a.is_nan() || b.is_nan() {
        let is_first = a.is_nan() == is_nan_wanted;
        return if is_first { a } else { b };
    }
    let is_first_less = a < b || a == b && a.is_sign_negative();
    let is_min = matches!(op, NumberOp::Min | NumberOp::MinNaN);
    if is_first_less == is_min { a } else { b }
}

/// The number held to 0..=1; a NaN is 0.
pub fn saturated(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}
