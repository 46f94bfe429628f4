//! Atomics, and reductions over the lanes of a warp.

use super::fault::Fault;
use super::memory::Memory;
use super::registers::{LANES, Lanes, Registers, lanes_in};
use super::transfer::addresses;
use crate::code::{Atomic, AtomicOp, Row};

/// The value that an atomic stores over `old`.
pub fn changed(op: AtomicOp, is_signed: bool, is_wide: bool, old: u64, operand: u64, swap: u64) -> u64 {
    let mask = if is_wide { u64::MAX } else { 0xffff_ffff };
    let (old, operand) = (old & mask, operand & mask);
    let extend = |value: u64| if is_wide { value as i64 } else { i64::from(value as i32) };
    let result = match op {
        AtomicOp::Add => old.wrapping_add(operand),
        AtomicOp::Min if is_signed => extend(old).min(extend(operand)) as u64,
        AtomicOp::Min => old.min(operand),
        AtomicOp::Max if is_signed => extend(old).max(extend(operand)) as u64,
        AtomicOp::Max => old.max(operand),
        AtomicOp::And => old & operand,
        AtomicOp::Or => old | operand,
        AtomicOp::Xor => old ^ operand,
        AtomicOp::Exchange => operand,
        AtomicOp::CompareAndSwap if old == operand => swap,
        AtomicOp::CompareAndSwap => old,
        AtomicOp::Increment if old >= operand => 0,
        AtomicOp::Increment => old + 1,
        AtomicOp::Decrement if old == 0 || old > operand => operand,
        AtomicOp::Decrement => old - 1,
    };
    result & mask
}

/// Runs an atomic, lane after lane.
pub fn atomic(registers: &mut Registers, memory: &mut Memory<'_>, lanes: Lanes, atomic: &Atomic) -> Result<(), Fault> {
    let addresses = addresses(registers, atomic.address);
    let operands = registers.values(atomic.operand);
    let swaps = registers.values(atomic.swap);
    let bytes = atomic.scalar.bytes();
    let mut before = [0; LANES];
    for lane in lanes_in(lanes) {
        let place = memory.change(atomic.address.space, addresses[lane], bytes, lane)?;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(place);
        let old = u64::from_le_bytes(word);
        let new = changed(atomic.op, atomic.scalar.is_signed(), bytes == 8, old, operands[lane], swaps[lane]);
        place.copy_from_slice(&new.to_le_bytes()[..bytes]);
        before[lane] = old;
    }
    registers.write(atomic.to, lanes, &before);
    Ok(())
}

/// Combines a value of all lanes.
pub fn reduce(registers: &mut Registers, lanes: Lanes, op: AtomicOp, is_signed: bool, to: Row, from: Row) {
    let values = registers.small[usize::from(from)];
    let mut each = lanes_in(lanes).map(|lane| u64::from(values[lane]));
    let Some(first) = each.next() else { return };
    let total = each.fold(first, |total, value| changed(op, is_signed, false, total, value, 0));
    registers.small_of(lanes, to, [from; 4], |_, _, _, _| total as u32);
}
