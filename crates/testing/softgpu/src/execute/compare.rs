//! Predicates: comparisons, selections, logic.

use super::exact::{BF16, F16, F32};
use super::registers::{LANES, Lanes, Registers, is_set};
use crate::code::{Comparison, ComparisonKind, Logic, PredicateSource, Row, Test};

/// Compares two registers.
#[inline(always)]
pub fn compare(registers: &mut Registers, lanes: Lanes, comparison: Comparison) {
    let [a, b] = comparison.numbers.map(usize::from);
    let holds = match comparison.kind {
        ComparisonKind::U16 => small(registers, a, b, comparison.test, |bits| (bits & 0xffff) as i32),
        ComparisonKind::S16 => small(registers, a, b, comparison.test, |bits| i32::from(bits as i16)),
        ComparisonKind::U32 => small(registers, a, b, comparison.test, |bits| bits),
        ComparisonKind::S32 => small(registers, a, b, comparison.test, |bits| bits as i32),
        ComparisonKind::F32 if comparison.flushes => {
            small(registers, a, b, comparison.test, |bits| f32::from_bits(F32.flushed(u64::from(bits)) as u32))
        }
        ComparisonKind::F32 => small(registers, a, b, comparison.test, f32::from_bits),
        ComparisonKind::F16 => small(registers, a, b, comparison.test, |bits| F16.to_f64(u64::from(bits & 0xffff))),
        ComparisonKind::Bf16 => small(registers, a, b, comparison.test, |bits| BF16.to_f64(u64::from(bits & 0xffff))),
        ComparisonKind::U64 => wide(registers, a, b, comparison.test, |bits| bits),
        ComparisonKind::S64 => wide(registers, a, b, comparison.test, |bits| bits as i64),
        ComparisonKind::F64 => wide(registers, a, b, comparison.test, f64::from_bits),
    };
    let combined = |holds: Lanes| match comparison.combined {
        Some((logic, with)) => combine(logic, holds, registers.lanes_of(with)),
        None => holds,
    };
    let (result, inverted) = (combined(holds), combined(!holds));
    if let Some(to) = comparison.to {
        registers.write_predicate(to, lanes, result);
    }
    if let Some(to) = comparison.inverted_to {
        registers.write_predicate(to, lanes, inverted);
    }
}

#[inline(always)]
fn small<T: PartialOrd + Copy>(
    registers: &Registers,
    a: usize,
    b: usize,
    test: Test,
    value: impl Fn(u32) -> T,
) -> Lanes {
    held(test, &registers.small[a], &registers.small[b], value)
}

#[inline(always)]
fn wide<T: PartialOrd + Copy>(
    registers: &Registers,
    a: usize,
    b: usize,
    test: Test,
    value: impl Fn(u64) -> T,
) -> Lanes {
    held(test, &registers.wide[a], &registers.wide[b], value)
}

#[inline(always)]
fn held<W: Copy, T: PartialOrd + Copy>(test: Test, a: &[W; LANES], b: &[W; LANES], value: impl Fn(W) -> T) -> Lanes {
    let (mut less, mut equal, mut greater): (Lanes, Lanes, Lanes) = (0, 0, 0);
    for lane in 0..LANES {
        let (a, b) = (value(a[lane]), value(b[lane]));
        less |= Lanes::from(a < b) << lane;
        equal |= Lanes::from(a == b) << lane;
        greater |= Lanes::from(a > b) << lane;
    }
    let unordered = !(less | equal | greater);
    let all = |wanted: bool, lanes: Lanes| if wanted { lanes } else { 0 };
    all(test.less, less) | all(test.equal, equal) | all(test.greater, greater) | all(test.unordered, unordered)
}

/// Combines predicates.
pub fn combine(logic: Logic, a: Lanes, b: Lanes) -> Lanes {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
        Logic::First => a,
    }
}

/// 32 bits by a predicate.
#[inline(always)]
pub fn select_small(registers: &mut Registers, lanes: Lanes, by: PredicateSource, to: Row, a: Row, b: Row) {
    let by = registers.lanes_of(by);
    let (a, b) = (registers.small[usize::from(a)], registers.small[usize::from(b)]);
    let to = &mut registers.small[usize::from(to)];
    for lane in 0..LANES {
        let value = if is_set(by, lane) { a[lane] } else { b[lane] };
        to[lane] = if is_set(lanes, lane) { value } else { to[lane] };
    }
}

/// 64 bits by a predicate.
#[inline(always)]
pub fn select_wide(registers: &mut Registers, lanes: Lanes, by: PredicateSource, to: Row, a: Row, b: Row) {
    let by = registers.lanes_of(by);
    let (a, b) = (registers.wide[usize::from(a)], registers.wide[usize::from(b)]);
    let to = &mut registers.wide[usize::from(to)];
    for lane in 0..LANES {
        let value = if is_set(by, lane) { a[lane] } else { b[lane] };
        to[lane] = if is_set(lanes, lane) { value } else { to[lane] };
    }
}

/// A where c is at least 0, b where it is less or a NaN; `c` is a floating-point or a whole number.
pub fn select_by_sign(registers: &mut Registers, lanes: Lanes, to: Row, from: [Row; 3], is_float: bool) {
    let [a, b, c] = from;
    registers.small_of(lanes, to, [a, b, c, c], |a, b, c, _| {
        let is_first = if is_float { f32::from_bits(c) >= 0.0 } else { c as i32 >= 0 };
        if is_first { a } else { b }
    });
}
