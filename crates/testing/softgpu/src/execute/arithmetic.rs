//! Instructions of lanes by themselves.

use super::compare::{combine, compare, select_by_sign, select_small, select_wide};
use super::convert::convert;
use super::integer::{count_wide, integer, multiply_wide, shift_wide};
use super::number::number;
use super::registers::{LANES, Lanes, Registers, Wide, is_set};
use crate::code::{Arithmetic, Row, Slot};

/// Runs an instruction in `lanes`.
#[inline(always)]
pub fn arithmetic(registers: &mut Registers, lanes: Lanes, op: &Arithmetic) {
    match *op {
        Arithmetic::Integer(op, format, to, from) => integer(registers, lanes, op, format, to, from),
        Arithmetic::ShiftWide(op, to, from, by) => shift_wide(registers, lanes, op, to, from, by),
        Arithmetic::CountWide(op, to, from) => count_wide(registers, lanes, op, to, from),
        Arithmetic::MultiplyWide(product) => multiply_wide(registers, lanes, product),
        Arithmetic::Number(op, to, from) => number(registers, lanes, op, to, from),
        Arithmetic::Convert(conversion, to, from) => convert(registers, lanes, conversion, to, from),
        Arithmetic::Compare(comparison) => compare(registers, lanes, comparison),
        Arithmetic::SelectSmall(by, to, a, b) => select_small(registers, lanes, by, to, a, b),
        Arithmetic::SelectWide(by, to, a, b) => select_wide(registers, lanes, by, to, a, b),
        Arithmetic::SelectBySign(to, a, b, c, is_float) => select_by_sign(registers, lanes, to, [a, b, c], is_float),
        Arithmetic::Logic(logic, to, a, b) => {
            let value = combine(logic, registers.lanes_of(a), registers.lanes_of(b));
            registers.write_predicate(to, lanes, value);
        }
        Arithmetic::MoveSmall(to, from) => registers.small_of(lanes, to, [from; 4], |a, _, _, _| a),
        Arithmetic::MoveWide(to, from) => registers.wide_of(lanes, to, [from; 4], |a, _, _, _| a),
        Arithmetic::Displace(to, from, added) => {
            registers.wide_of(lanes, to, [from; 4], |a, _, _, _| a.wrapping_add(added));
        }
        Arithmetic::Pack(to, from, bits, count) => pack(registers, lanes, to, from, bits, count),
        Arithmetic::Unpack(to, from, bits, count) => unpack(registers, lanes, to, from, bits, count),
        Arithmetic::Join(to, low, high) => join(registers, lanes, to, low, high),
        Arithmetic::Split(low, high, from) => split(registers, lanes, low, high, from),
    }
}

fn pack(registers: &mut Registers, lanes: Lanes, to: Slot, from: [Row; 4], bits: u8, count: u8) {
    let mut values: Wide = [0; LANES];
    for (place, row) in from.into_iter().take(usize::from(count)).enumerate() {
        let part = &registers.small[usize::from(row)];
        for lane in 0..LANES {
            values[lane] |= (u64::from(part[lane]) & ((1 << bits) - 1)) << (place * usize::from(bits));
        }
    }
    registers.write(to, lanes, &values);
}

fn unpack(registers: &mut Registers, lanes: Lanes, to: [Slot; 4], from: Slot, bits: u8, count: u8) {
    let values = registers.values(from);
    for (place, to) in to.into_iter().take(usize::from(count)).enumerate() {
        let part = values.map(|value| value >> (place * usize::from(bits)) & ((1 << bits) - 1));
        registers.write(to, lanes, &part);
    }
}

#[inline(always)]
fn join(registers: &mut Registers, lanes: Lanes, to: Row, low: Row, high: Row) {
    let (low, high) = (registers.small[usize::from(low)], registers.small[usize::from(high)]);
    let to = &mut registers.wide[usize::from(to)];
    for lane in 0..LANES {
        let value = u64::from(high[lane]) << 32 | u64::from(low[lane]);
        to[lane] = if is_set(lanes, lane) { value } else { to[lane] };
    }
}

#[inline(always)]
fn split(registers: &mut Registers, lanes: Lanes, low: Slot, high: Slot, from: Row) {
    let values = registers.wide[usize::from(from)];
    for (to, shift) in [(low, 0), (high, 32)] {
        let Slot::Small(row) = to else { continue };
        let to = &mut registers.small[usize::from(row)];
        for lane in 0..LANES {
            to[lane] = if is_set(lanes, lane) { (values[lane] >> shift) as u32 } else { to[lane] };
        }
    }
}
