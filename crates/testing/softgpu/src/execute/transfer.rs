//! Loads and stores of a warp.

use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::registers::{LANES, Lanes, Registers, Wide, lanes_in};
use super::runs::Runs;
use crate::code::{Address, Kernel, Slot, Transfer};
use crate::memory::windows::resolved;
use crate::ptx::Space;

/// The most elements of a load or store.
const MAX_ELEMENTS: usize = 8;
/// The most bytes of a load or store of one lane.
const MAX_BYTES: usize = 64;

/// The addresses of an instruction, in all lanes.
pub fn addresses(registers: &Registers, address: Address) -> Wide {
    registers.values(address.base).map(|base| base.wrapping_add_signed(address.offset))
}

/// The space and address there of an access.
pub fn place(space: Space, address: u64) -> (Space, u64) {
    match space {
        Space::Generic => resolved(address),
        Space::Const => (Space::Global, address),
        Space::Global | Space::Shared | Space::Local | Space::Param => (space, address),
    }
}

/// Stops where an address is not a multiple of the size.
pub fn check_alignment(address: u64, bytes: usize, lane: usize) -> Result<(), Fault> {
    if address.is_multiple_of(bytes as u64) {
        return Ok(());
    }
    let text = format!("address {address:#x} is not a multiple of the {bytes} bytes that are accessed");
    Err(Fault::of_lane(FaultKind::Misaligned, lane, text))
}

/// Loads. `runs` is room for the accesses.
///
/// # Errors
/// An access that a lane may not make.
pub fn load(
    registers: &mut Registers,
    memory: &mut Memory<'_>,
    runs: &mut Runs,
    kernel: &Kernel,
    lanes: Lanes,
    transfer: &Transfer,
) -> Result<(), Fault> {
    let addresses = addresses(registers, transfer.address);
    let (bytes, count) = (usize::from(transfer.bytes), usize::from(transfer.count));
    let first = transfer.slots as usize;
    let slots = &kernel.slots[first..first + count];
    let is_aligned = runs.set(&addresses, lanes, bytes * count);
    if is_aligned && let Some((from, start)) = memory.read_all(transfer.address.space, runs) {
        for (index, slot) in slots.iter().enumerate() {
            let start = start.wrapping_sub((index * bytes) as u64);
            let place = |lane: usize| addresses[lane].wrapping_sub(start) as usize;
            match (*slot, bytes) {
                (Slot::Small(row), 4) => {
                    let row = &mut registers.small[usize::from(row)];
                    each_lane(lanes, |lane| row[lane] = word(from, place(lane)));
                }
                (Slot::Small(row), _) => {
                    let row = &mut registers.small[usize::from(row)];
                    each_lane(lanes, |lane| {
                        row[lane] = read_element(&from[place(lane)..place(lane) + bytes], transfer.is_signed) as u32;
                    });
                }
                (Slot::Wide(row), _) => {
                    let row = &mut registers.wide[usize::from(row)];
                    each_lane(lanes, |lane| {
                        row[lane] = read_element(&from[place(lane)..place(lane) + bytes], transfer.is_signed);
                    });
                }
                (Slot::Sink, _) => {}
            }
        }
        return Ok(());
    }
    let mut values = [[0; LANES]; MAX_ELEMENTS];
    for lane in lanes_in(lanes) {
        let from = memory.read(transfer.address.space, addresses[lane], bytes * count, lane)?;
        for (element, value) in from.chunks_exact(bytes).zip(&mut values) {
            value[lane] = read_element(element, transfer.is_signed);
        }
    }
    for (slot, values) in slots.iter().zip(&values) {
        registers.write(*slot, lanes, values);
    }
    Ok(())
}

/// Stores. `runs` is room for the accesses.
///
/// # Errors
/// An access that a lane may not make.
pub fn store(
    registers: &Registers,
    memory: &mut Memory<'_>,
    runs: &mut Runs,
    kernel: &Kernel,
    lanes: Lanes,
    transfer: &Transfer,
) -> Result<(), Fault> {
    let addresses = addresses(registers, transfer.address);
    let (bytes, count) = (usize::from(transfer.bytes), usize::from(transfer.count));
    let first = transfer.slots as usize;
    let slots = &kernel.slots[first..first + count];
    let is_aligned = runs.set(&addresses, lanes, bytes * count);
    if is_aligned && let Some((to, start)) = memory.write_all(transfer.address.space, runs) {
        for (index, slot) in slots.iter().enumerate() {
            let start = start.wrapping_sub((index * bytes) as u64);
            let place = |lane: usize| addresses[lane].wrapping_sub(start) as usize;
            if let (Slot::Small(row), 4) = (*slot, bytes) {
                let row = &registers.small[usize::from(row)];
                each_lane(lanes, |lane| to[place(lane)..place(lane) + 4].copy_from_slice(&row[lane].to_le_bytes()));
            } else {
                let values = registers.values(*slot);
                each_lane(lanes, |lane| {
                    to[place(lane)..place(lane) + bytes].copy_from_slice(&values[lane].to_le_bytes()[..bytes]);
                });
            }
        }
        return Ok(());
    }
    let mut values = [[0; LANES]; MAX_ELEMENTS];
    for (slot, values) in slots.iter().zip(&mut values) {
        *values = registers.values(*slot);
    }
    let mut buffer = [0; MAX_BYTES];
    for lane in lanes_in(lanes) {
        for (element, value) in buffer.chunks_exact_mut(bytes).zip(&values[..count]) {
            element.copy_from_slice(&value[lane].to_le_bytes()[..bytes]);
        }
        memory.write(transfer.address.space, addresses[lane], &buffer[..bytes * count], lane)?;
    }
    Ok(())
}

/// Calls `f` with each of the lanes.
#[inline(always)]
fn each_lane(lanes: Lanes, mut f: impl FnMut(usize)) {
    if lanes == Lanes::MAX {
        (0..LANES).for_each(f);
    } else {
        lanes_in(lanes).for_each(&mut f);
    }
}

/// The word at a place.
#[inline(always)]
fn word(from: &[u8], place: usize) -> u32 {
    from[place..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A value of 1, 2, 4 or 8 bytes, extended to 64 bits.
#[inline(always)]
fn read_element(bytes: &[u8], is_signed: bool) -> u64 {
    match (bytes, is_signed) {
        ([a, b, c, d], false) => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        ([a, b, c, d], true) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])) as u64,
        ([a, b], false) => u64::from(u16::from_le_bytes([*a, *b])),
        ([a, b], true) => i64::from(i16::from_le_bytes([*a, *b])) as u64,
        ([a], false) => u64::from(*a),
        ([a], true) => i64::from(*a as i8) as u64,
        ([a, b, c, d, e, f, g, h], _) => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        _ => 0,
    }
}
