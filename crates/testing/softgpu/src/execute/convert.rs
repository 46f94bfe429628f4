//! One type to another.

use super::exact::{BF16, Exact, F16, F32, F64, Format, shift_right};
use super::number::saturated;
use super::registers::{LANES, Lanes, Registers, Wide, is_set};
use crate::code::{Conversion, Rounding, Slot};
use crate::ptx::Scalar;

/// Converts a register.
#[inline(always)]
pub fn convert(registers: &mut Registers, lanes: Lanes, conversion: Conversion, to: Slot, from: Slot) {
    if !conversion.saturates && widened(registers, lanes, conversion, to, from) {
        return;
    }
    in_general(registers, lanes, conversion, to, from);
}

/// The common conversions between registers; `false` for others.
#[inline(always)]
fn widened(registers: &mut Registers, lanes: Lanes, conversion: Conversion, to: Slot, from: Slot) -> bool {
    let is_nearest = conversion.rounding == Rounding::Nearest && !conversion.is_integral && !conversion.flushes;
    match (conversion.to, conversion.from, to, from) {
        (Scalar::U64 | Scalar::S64, Scalar::U32, Slot::Wide(to), Slot::Small(from)) => {
            let a = registers.small[usize::from(from)];
            let to = &mut registers.wide[usize::from(to)];
            for lane in 0..LANES {
                to[lane] = if is_set(lanes, lane) { u64::from(a[lane]) } else { to[lane] };
            }
        }
        (Scalar::U64 | Scalar::S64, Scalar::S32, Slot::Wide(to), Slot::Small(from)) => {
            let a = registers.small[usize::from(from)];
            let to = &mut registers.wide[usize::from(to)];
            for lane in 0..LANES {
                to[lane] = if is_set(lanes, lane) { i64::from(a[lane] as i32) as u64 } else { to[lane] };
            }
        }
        (Scalar::U32 | Scalar::S32, Scalar::U64 | Scalar::S64, Slot::Small(to), Slot::Wide(from)) => {
            let a = registers.wide[usize::from(from)];
            let to = &mut registers.small[usize::from(to)];
            for lane in 0..LANES {
                to[lane] = if is_set(lanes, lane) { a[lane] as u32 } else { to[lane] };
            }
        }
        (Scalar::F32, Scalar::S32, Slot::Small(to), Slot::Small(from)) if is_nearest => {
            registers.small_of(lanes, to, [from; 4], |a, _, _, _| (a as i32 as f32).to_bits());
        }
        (Scalar::F32, Scalar::U32, Slot::Small(to), Slot::Small(from)) if is_nearest => {
            registers.small_of(lanes, to, [from; 4], |a, _, _, _| (a as f32).to_bits());
        }
        (Scalar::F32, Scalar::Bf16, Slot::Small(to), Slot::Small(from)) if is_nearest => {
            registers.small_of(lanes, to, [from; 4], |a, _, _, _| {
                let bits = a << 16;
                if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits }
            });
        }
        (Scalar::Bf16, Scalar::F32, Slot::Small(to), Slot::Small(from)) if is_nearest && !conversion.is_relu => {
            registers.small_of(lanes, to, [from; 4], |a, _, _, _| brain(a));
        }
        (Scalar::Bf16x2, Scalar::F32, Slot::Small(to), Slot::Small(high)) if is_nearest && !conversion.is_relu => {
            let low = conversion.low.unwrap_or(high);
            registers.small_of(lanes, to, [high, low, low, low], |high, low, _, _| brain(high) << 16 | brain(low));
        }
        _ => return false,
    }
    true
}

/// A number of single precision as a brain float, to the nearest.
#[inline(always)]
fn brain(bits: u32) -> u32 {
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }
}

#[inline(never)]
fn in_general(registers: &mut Registers, lanes: Lanes, conversion: Conversion, to: Slot, from: Slot) {
    let values = registers.values(from);
    let mut results: Wide = [0; LANES];
    let halves = [(Scalar::F16x2, Scalar::F16), (Scalar::Bf16x2, Scalar::Bf16)];
    let of_half = halves.into_iter().find(|(pair, _)| *pair == conversion.to).map(|(_, half)| half);
    match (of_half, conversion.low) {
        (Some(half), Some(low)) => {
            let lows = registers.values(Slot::Small(low));
            let conversion = Conversion { to: half, ..conversion };
            for lane in 0..LANES {
                results[lane] = one(conversion, values[lane]) << 16 | one(conversion, lows[lane]);
            }
        }
        _ => {
            for lane in 0..LANES {
                results[lane] = one(conversion, values[lane]);
            }
        }
    }
    registers.write(to, lanes, &results);
}

fn format_of(scalar: Scalar) -> Option<Format> {
    match scalar {
        Scalar::F16 => Some(F16),
        Scalar::Bf16 => Some(BF16),
        Scalar::F32 => Some(F32),
        Scalar::F64 => Some(F64),
        Scalar::Pred
        | Scalar::F16x2
        | Scalar::Bf16x2
        | Scalar::B8
        | Scalar::B16
        | Scalar::B32
        | Scalar::B64
        | Scalar::U8
        | Scalar::U16
        | Scalar::U32
        | Scalar::U64
        | Scalar::S8
        | Scalar::S16
        | Scalar::S32
        | Scalar::S64 => None,
    }
}

/// One value; whole numbers with a sign fill all 64 bits with it.
pub fn one(conversion: Conversion, bits: u64) -> u64 {
    match (format_of(conversion.from), format_of(conversion.to)) {
        (None, None) => integer_to_integer(conversion, bits),
        (None, Some(to)) => integer_to_number(conversion, bits, to),
        (Some(from), None) => number_to_integer(conversion, bits, from),
        (Some(from), Some(to)) => number_to_number(conversion, bits, from, to),
    }
}

/// The value of an integer type.
fn integer(bits: u64, scalar: Scalar) -> i128 {
    match (scalar.bytes(), scalar.is_signed()) {
        (1, true) => i128::from(bits as i8),
        (1, false) => i128::from(bits as u8),
        (2, true) => i128::from(bits as i16),
        (2, false) => i128::from(bits as u16),
        (4, true) => i128::from(bits as i32),
        (4, false) => i128::from(bits as u32),
        (_, true) => i128::from(bits as i64),
        (_, false) => i128::from(bits),
    }
}

/// The least and greatest value of an integer type.
fn range(scalar: Scalar) -> (i128, i128) {
    let bits = scalar.bytes() * 8;
    if scalar.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn integer_to_integer(conversion: Conversion, bits: u64) -> u64 {
    let value = integer(bits, conversion.from);
    let (least, greatest) = range(conversion.to);
    let value = if conversion.saturates { value.clamp(least, greatest) } else { value };
    integer(value as u64, conversion.to) as u64
}

fn integer_to_number(conversion: Conversion, bits: u64, to: Format) -> u64 {
    let value = integer(bits, conversion.from);
    let exact = Exact { is_negative: value < 0, magnitude: value.unsigned_abs() as u64, exponent: 0, is_more: false };
    let result = to.rounded(exact, conversion.rounding);
    if !conversion.saturates {
        return result;
    }
    to.of_f64(f64::from(saturated(to.to_f64(result) as f32)), Rounding::Nearest)
}

fn number_to_integer(conversion: Conversion, bits: u64, from: Format) -> u64 {
    let bits = if conversion.flushes { from.flushed(bits) } else { bits };
    let bits = bits & (from.sign() << 1).wrapping_sub(1);
    let (least, greatest) = range(conversion.to);
    if from.is_nan(bits) {
        // A NaN is 0, but of 64 bits on either side the highest bit alone.
        let is_long = conversion.from == Scalar::F64 || conversion.to.bytes() == 8;
        return if is_long { integer(1 << (conversion.to.bytes() * 8 - 1), conversion.to) as u64 } else { 0 };
    }
    let is_negative = bits & from.sign() != 0;
    if !from.is_finite(bits) {
        return (if is_negative { least } else { greatest }) as u64;
    }
    let exact = from.exact(bits);
    let magnitude = if exact.exponent > 64 { i128::MAX >> 1 } else { whole(exact, conversion.rounding) };
    let value = if is_negative { -magnitude } else { magnitude };
    value.clamp(least, greatest) as u64
}

/// The magnitude as a whole number.
fn whole(exact: Exact, rounding: Rounding) -> i128 {
    if exact.exponent >= 0 {
        i128::from(exact.magnitude) << exact.exponent.min(62)
    } else {
        i128::from(shift_right(exact, -exact.exponent, rounding))
    }
}

fn number_to_number(conversion: Conversion, bits: u64, from: Format, to: Format) -> u64 {
    let bits = bits & (from.sign() << 1).wrapping_sub(1);
    let bits = if conversion.flushes && conversion.from == Scalar::F32 { from.flushed(bits) } else { bits };
    if from.is_nan(bits) {
        return if conversion.saturates { 0 } else { to.canonical_nan };
    }
    let is_negative = bits & from.sign() != 0;
    let sign = if is_negative { to.sign() } else { 0 };
    let mut result = if !from.is_finite(bits) {
        sign | to.infinity()
    } else {
        let exact = from.exact(bits);
        let exact = if conversion.is_integral && exact.exponent < 0 {
            Exact { magnitude: whole(exact, conversion.rounding) as u64, exponent: 0, ..exact }
        } else {
            exact
        };
        to.rounded(exact, conversion.rounding)
    };
    if conversion.flushes && conversion.to == Scalar::F32 {
        result = to.flushed(result);
    }
    let is_less_than_zero = is_negative && result != sign;
    if conversion.is_relu && is_negative || conversion.saturates && is_less_than_zero {
        return 0;
    }
    let one = to.of_f64(1.0, Rounding::Nearest);
    match conversion.saturates {
        true if is_negative => 0,
        true => result.min(one),
        false => result,
    }
}
