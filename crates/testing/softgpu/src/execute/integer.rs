//! Integers.

use super::registers::{LANES, Lanes, Registers, SCRATCH, is_set};
use crate::code::{Integer, IntegerFormat, MultiplyWide, Row};

/// Runs an operation of integers.
#[inline(always)]
pub fn integer(registers: &mut Registers, lanes: Lanes, op: Integer, format: IntegerFormat, to: Row, from: [Row; 4]) {
    match format {
        IntegerFormat::Small => small(registers, lanes, op, to, from),
        IntegerFormat::Wide => wide(registers, lanes, op, to, from),
        IntegerFormat::U16 => short(registers, lanes, op, to, from, |value| value & 0xffff),
        IntegerFormat::S16 => short(registers, lanes, op, to, from, |value| i32::from(value as i16) as u32),
    }
}

/// 16 bits: extended to 32, computed there, and cut off again by whoever reads them.
fn short(registers: &mut Registers, lanes: Lanes, op: Integer, to: Row, from: [Row; 4], extend: fn(u32) -> u32) {
    let first = (registers.small.len() - SCRATCH) as Row;
    let scratch = [first, first + 1, first + 2, first + 3];
    let is_shift = matches!(op, Integer::ShiftLeft | Integer::ShiftRightS | Integer::ShiftRightU);
    for (place, row) in from.into_iter().enumerate() {
        // The distance of a shift has 32 bits.
        let extend = if is_shift && place > 0 { |value| value } else { extend };
        registers.small_of(u32::MAX, scratch[place], [row; 4], |value, _, _, _| extend(value));
    }
    if matches!(op, Integer::MultiplyHighS | Integer::MultiplyHighU) {
        registers.small_of(lanes, to, scratch, |a, b, _, _| a.wrapping_mul(b) >> 16);
    } else {
        small(registers, lanes, op, to, scratch);
    }
}

macro_rules! lanes_of_words {
    ($name:ident, $each:ident, $u:ty, $s:ty, $du:ty, $ds:ty) => {
        #[inline(always)]
        fn $name(registers: &mut Registers, lanes: Lanes, op: Integer, to: Row, from: [Row; 4]) {
            const BITS: u32 = <$u>::BITS;
            macro_rules! each {
                ($f:expr) => {
                    registers.$each(lanes, to, from, $f)
                };
            }
            let high_u = |a: $u, b: $u| (<$du>::from(a) * <$du>::from(b) >> BITS) as $u;
            let high_s = |a: $u, b: $u| (<$ds>::from(a as $s) * <$ds>::from(b as $s) >> BITS) as $u;
            match op {
                Integer::Add => each!(|a, b, _, _| a.wrapping_add(b)),
                Integer::Sub => each!(|a, b, _, _| a.wrapping_sub(b)),
                Integer::AddSaturating => each!(|a, b, _, _| (a as $s).saturating_add(b as $s) as $u),
                Integer::SubSaturating => each!(|a, b, _, _| (a as $s).saturating_sub(b as $s) as $u),
                Integer::Multiply => each!(|a, b, _, _| a.wrapping_mul(b)),
                Integer::MultiplyHighS => each!(|a, b, _, _| high_s(a, b)),
                Integer::MultiplyHighU => each!(|a, b, _, _| high_u(a, b)),
                Integer::MultiplyAdd => each!(|a, b, c, _| a.wrapping_mul(b).wrapping_add(c)),
                Integer::MultiplyHighAddS => each!(|a, b, c, _| high_s(a, b).wrapping_add(c)),
                Integer::MultiplyHighAddU => each!(|a, b, c, _| high_u(a, b).wrapping_add(c)),
                Integer::Multiply24S => {
                    each!(|a, b, _, _| ((a as $s) << (BITS - 24) >> (BITS - 24))
                        .wrapping_mul((b as $s) << (BITS - 24) >> (BITS - 24)) as $u)
                }
                Integer::Multiply24U => each!(|a, b, _, _| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
                // The quotient by 0 is unspecified; hardware gives all ones.
                Integer::DivideS => {
                    each!(|a, b, _, _| if b == 0 { <$u>::MAX } else { (a as $s).wrapping_div(b as $s) as $u })
                }
                Integer::DivideU => each!(|a, b, _, _| a.checked_div(b).unwrap_or(<$u>::MAX)),
                Integer::RemainderS => {
                    each!(|a, b, _, _| if b == 0 { a } else { (a as $s).wrapping_rem(b as $s) as $u })
                }
                Integer::RemainderU => each!(|a, b, _, _| a.checked_rem(b).unwrap_or(a)),
                Integer::MinS => each!(|a, b, _, _| (a as $s).min(b as $s) as $u),
                Integer::MinU => each!(|a, b, _, _| a.min(b)),
                Integer::MaxS => each!(|a, b, _, _| (a as $s).max(b as $s) as $u),
                Integer::MaxU => each!(|a, b, _, _| a.max(b)),
                Integer::Absolute => each!(|a, _, _, _| (a as $s).wrapping_abs() as $u),
                Integer::Negate => each!(|a, _, _, _| a.wrapping_neg()),
                Integer::And => each!(|a, b, _, _| a & b),
                Integer::Or => each!(|a, b, _, _| a | b),
                Integer::Xor => each!(|a, b, _, _| a ^ b),
                Integer::Not => each!(|a, _, _, _| !a),
                Integer::LogicalNot => each!(|a, _, _, _| <$u>::from(a == 0)),
                Integer::SumOfDifferencesS => {
                    each!(|a, b, c, _| (a as $s).abs_diff(b as $s).wrapping_add(c))
                }
                Integer::SumOfDifferencesU => each!(|a, b, c, _| a.abs_diff(b).wrapping_add(c)),
                Integer::Reverse => each!(|a, _, _, _| a.reverse_bits()),
                Integer::ShiftLeft => each!(|a, b, _, _| if b >= BITS as $u { 0 } else { a << (b % BITS as $u) }),
                Integer::ShiftRightU => each!(|a, b, _, _| if b >= BITS as $u { 0 } else { a >> (b % BITS as $u) }),
                Integer::ShiftRightS => each!(|a, b, _, _| ((a as $s) >> b.min(BITS as $u - 1)) as $u),
                Integer::FunnelLeftClamp
                | Integer::FunnelLeftWrap
                | Integer::FunnelRightClamp
                | Integer::FunnelRightWrap
                | Integer::Lookup(_)
                | Integer::Permute
                | Integer::ExtractS
                | Integer::ExtractU
                | Integer::Insert
                | Integer::LeadingZeros
                | Integer::Population
                | Integer::FindS
                | Integer::FindU
                | Integer::FindShiftS
                | Integer::FindShiftU => words(registers, lanes, op, to, from),
            }
        }
    };
}

lanes_of_words!(small, small_of, u32, i32, u64, i64);
lanes_of_words!(wide, wide_of, u64, i64, u128, i128);

/// Operations of 32 bits alone. The decoder makes no others.
#[inline(always)]
fn words(registers: &mut Registers, lanes: Lanes, op: Integer, to: Row, from: [Row; 4]) {
    macro_rules! each {
        ($f:expr) => {
            registers.small_of(lanes, to, from, $f)
        };
    }
    let joined = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    match op {
        Integer::FunnelLeftClamp => each!(|a, b, c, _| (joined(a, b) << c.min(32) >> 32) as u32),
        Integer::FunnelLeftWrap => each!(|a, b, c, _| (joined(a, b) << (c & 31) >> 32) as u32),
        Integer::FunnelRightClamp => each!(|a, b, c, _| (joined(a, b) >> c.min(32)) as u32),
        Integer::FunnelRightWrap => each!(|a, b, c, _| (joined(a, b) >> (c & 31)) as u32),
        Integer::Lookup(table) => {
            let terms: [u32; 8] = std::array::from_fn(|index| 0u32.wrapping_sub(u32::from(table >> index & 1)));
            each!(|a, b, c, _| {
                terms[0] & !a & !b & !c
                    | terms[1] & !a & !b & c
                    | terms[2] & !a & b & !c
                    | terms[3] & !a & b & c
                    | terms[4] & a & !b & !c
                    | terms[5] & a & !b & c
                    | terms[6] & a & b & !c
                    | terms[7] & a & b & c
            });
        }
        Integer::Permute => each!(|a, b, selector, _| permuted(joined(a, b), selector)),
        Integer::ExtractS => each!(|a, position, length, _| extracted(a, position, length, true)),
        Integer::ExtractU => each!(|a, position, length, _| extracted(a, position, length, false)),
        Integer::Insert => each!(inserted),
        Integer::LeadingZeros => each!(|a, _, _, _| a.leading_zeros()),
        Integer::Population => each!(|a, _, _, _| a.count_ones()),
        Integer::FindS => each!(|a, _, _, _| 31u32.wrapping_sub((a ^ sign_of(a)).leading_zeros())),
        Integer::FindU => each!(|a, _, _, _| 31u32.wrapping_sub(a.leading_zeros())),
        Integer::FindShiftS => each!(|a, _, _, _| none_if_32((a ^ sign_of(a)).leading_zeros())),
        Integer::FindShiftU => each!(|a, _, _, _| none_if_32(a.leading_zeros())),
        Integer::Add
        | Integer::Sub
        | Integer::AddSaturating
        | Integer::SubSaturating
        | Integer::Multiply
        | Integer::MultiplyHighS
        | Integer::MultiplyHighU
        | Integer::MultiplyAdd
        | Integer::MultiplyHighAddS
        | Integer::MultiplyHighAddU
        | Integer::Multiply24S
        | Integer::Multiply24U
        | Integer::DivideS
        | Integer::DivideU
        | Integer::RemainderS
        | Integer::RemainderU
        | Integer::MinS
        | Integer::MinU
        | Integer::MaxS
        | Integer::MaxU
        | Integer::Absolute
        | Integer::Negate
        | Integer::And
        | Integer::Or
        | Integer::Xor
        | Integer::Not
        | Integer::LogicalNot
        | Integer::SumOfDifferencesS
        | Integer::SumOfDifferencesU
        | Integer::Reverse
        | Integer::ShiftLeft
        | Integer::ShiftRightU
        | Integer::ShiftRightS => {}
    }
}

fn sign_of(a: u32) -> u32 {
    (a as i32 >> 31) as u32
}

fn none_if_32(zeros: u32) -> u32 {
    if zeros == 32 { u32::MAX } else { zeros }
}

/// Four bytes of eight by a selector of four digits; the high bit of a digit repeats the sign of its byte.
fn permuted(bytes: u64, selector: u32) -> u32 {
    let mut result = 0;
    for place in 0..4 {
        let digit = selector >> (4 * place) & 15;
        let byte = (bytes >> (8 * (digit & 7))) as u8;
        let byte = if digit & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        result |= u32::from(byte) << (8 * place);
    }
    result
}

/// A field; bits above the number's own are its sign, or zeros.
fn extracted(a: u32, position: u32, length: u32, is_signed: bool) -> u32 {
    let (position, length) = (position & 255, length & 255);
    if length == 0 {
        return 0;
    }
    let long = if is_signed { i64::from(a as i32) } else { i64::from(a) };
    let field = long >> position.min(63);
    if length >= 32 {
        return field as u32;
    }
    // The sign of a field is its highest bit, or the highest of the number.
    let sign = if is_signed { long >> (position + length - 1).min(31) & 1 } else { 0 };
    let low = field as u32 & ((1 << length) - 1);
    if sign == 0 { low } else { low | u32::MAX << length }
}

fn inserted(a: u32, b: u32, position: u32, length: u32) -> u32 {
    let (position, length) = (position & 255, (length & 255).min(32));
    if position >= 32 {
        return b;
    }
    let field = ((1u64 << length) - 1) as u32;
    let mask = field << position;
    b & !mask | (a << position) & mask
}

/// A shift of 64 bits by a number of 32.
#[inline(always)]
pub fn shift_wide(registers: &mut Registers, lanes: Lanes, op: Integer, to: Row, from: Row, by: Row) {
    let a = registers.wide[usize::from(from)];
    let by = registers.small[usize::from(by)];
    let to = &mut registers.wide[usize::from(to)];
    for lane in 0..LANES {
        let distance = by[lane];
        let value = if op == Integer::ShiftLeft {
            a[lane].checked_shl(distance).unwrap_or(0)
        } else if op == Integer::ShiftRightS {
            (a[lane] as i64 >> distance.min(63)) as u64
        } else {
            a[lane].checked_shr(distance).unwrap_or(0)
        };
        to[lane] = if is_set(lanes, lane) { value } else { to[lane] };
    }
}

/// A number of bits of 64.
#[inline(always)]
pub fn count_wide(registers: &mut Registers, lanes: Lanes, op: Integer, to: Row, from: Row) {
    let a = registers.wide[usize::from(from)];
    let to = &mut registers.small[usize::from(to)];
    for lane in 0..LANES {
        let value = a[lane];
        let folded = value ^ (value as i64 >> 63) as u64;
        let is_signed = matches!(op, Integer::FindS | Integer::FindShiftS);
        let zeros = if is_signed { folded.leading_zeros() } else { value.leading_zeros() };
        let count = if op == Integer::Population {
            value.count_ones()
        } else if op == Integer::LeadingZeros {
            zeros
        } else if matches!(op, Integer::FindShiftS | Integer::FindShiftU) {
            if zeros == 64 { u32::MAX } else { zeros }
        } else {
            63u32.wrapping_sub(zeros)
        };
        to[lane] = if is_set(lanes, lane) { count } else { to[lane] };
    }
}

/// A product of twice the width.
#[inline(always)]
pub fn multiply_wide(registers: &mut Registers, lanes: Lanes, product: MultiplyWide) {
    let [a, b] = product.factors.map(|row| registers.small[usize::from(row)]);
    if product.is_narrow {
        let addend = product.addend.map_or([0; LANES], |row| registers.small[usize::from(row)]);
        let to = &mut registers.small[usize::from(product.to)];
        for lane in 0..LANES {
            let value = if product.is_signed {
                (i32::from(a[lane] as i16) * i32::from(b[lane] as i16)) as u32
            } else {
                (a[lane] & 0xffff) * (b[lane] & 0xffff)
            };
            to[lane] = if is_set(lanes, lane) { value.wrapping_add(addend[lane]) } else { to[lane] };
        }
        return;
    }
    let addend = product.addend.map_or([0; LANES], |row| registers.wide[usize::from(row)]);
    let to = &mut registers.wide[usize::from(product.to)];
    for lane in 0..LANES {
        let value = if product.is_signed {
            (i64::from(a[lane] as i32) * i64::from(b[lane] as i32)) as u64
        } else {
            u64::from(a[lane]) * u64::from(b[lane])
        };
        to[lane] = if is_set(lanes, lane) { value.wrapping_add(addend[lane]) } else { to[lane] };
    }
}
