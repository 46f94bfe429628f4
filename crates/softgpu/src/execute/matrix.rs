//! Products of matrices by a warp, and their fragments in shared memory.

use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::registers::{LANES, Lanes, Registers};
use super::tensor_core::{COLUMNS, Factor, Rule, add_block, factor, format_of, is_any_special, special_sum};
use super::transfer::addresses;
use crate::code::{FragmentTransfer, MatrixProduct};

/// Rows of a product.
const ROWS: usize = 16;

/// The halves of `a[row][step]` and `b[step][column]` as bits.
struct Operands {
    a: [[u32; 16]; ROWS],
    b: [[u32; COLUMNS]; 16],
}

fn half(word: u32, part: usize) -> u32 {
    word >> (16 * part) & 0xffff
}

/// Gathers the operands from the lanes' fragments (PTX ISA, fragments of `mma.m16n8k16` and `.m16n8k8`).
fn gathered(registers: &Registers, product: &MatrixProduct) -> Operands {
    let mut operands = Operands { a: [[0; 16]; ROWS], b: [[0; COLUMNS]; 16] };
    let halves = usize::from(product.depth) / 8;
    for lane in 0..LANES {
        let (group, place) = (lane / 4, lane % 4 * 2);
        for part in 0..2 {
            for step_half in 0..halves {
                let step = step_half * 8 + place + part;
                for row_half in 0..2 {
                    let word = registers.small[usize::from(product.a[step_half * 2 + row_half])][lane];
                    operands.a[row_half * 8 + group][step] = half(word, part);
                }
                let word = registers.small[usize::from(product.b[step_half])][lane];
                operands.b[step][group] = half(word, part);
            }
        }
    }
    operands
}

/// Computes a product of matrices.
#[inline(always)]
pub fn product(registers: &mut Registers, product: &MatrixProduct, rule: Rule) {
    let operands = gathered(registers, product);
    let format = format_of(product.format);
    let depth = usize::from(product.depth);
    let b: [[Factor; COLUMNS]; 16] = operands.b.map(|row| row.map(|bits| factor(format, bits)));
    for row in 0..ROWS {
        let a: [Factor; 16] = operands.a[row].map(|bits| factor(format, bits));
        // Lane 4 g + p has columns 2 p and 2 p + 1 of rows g and g + 8.
        let place = |column: usize| (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
        let mut sums: [f32; COLUMNS] = std::array::from_fn(|column| {
            let (register, lane) = place(column);
            f32::from_bits(registers.small[usize::from(product.c[register])][lane])
        });
        for first in (0..depth).step_by(rule.steps) {
            let end = depth.min(first + rule.steps);
            let is_special = is_any_special(&a[first..end])
                || b[first..end].iter().any(|b| is_any_special(b))
                || sums.iter().any(|sum| !sum.is_finite());
            let before = sums;
            if is_special {
                sums = sums.map(|sum| if sum.is_finite() { sum } else { 0.0 });
            }
            add_block(rule, format, &a[first..end], &b[first..end], &mut sums);
            if is_special {
                for column in 0..COLUMNS {
                    let pairs: Vec<(u32, u32)> =
                        (first..end).map(|step| (operands.a[row][step], operands.b[step][column])).collect();
                    if let Some(special) = special_sum(format, &pairs, before[column]) {
                        sums[column] = special;
                    }
                }
            }
        }
        for (column, sum) in sums.iter().enumerate() {
            let (register, lane) = place(column);
            registers.small[usize::from(product.d[register])][lane] = sum.to_bits();
        }
    }
}

/// Stops where some lanes of the warp do not run an instruction of all.
pub fn check_all(lanes: Lanes) -> Result<(), Fault> {
    if lanes == Lanes::MAX {
        return Ok(());
    }
    let text = format!("only lanes {lanes:#010x} run an instruction of all lanes of a warp");
    Err(Fault::of_lane(FaultKind::Barrier, lanes.trailing_zeros() as usize % LANES, text))
}

/// The matrix row and the column of a register's part in a lane.
fn element(lane: usize, part: usize, is_transposed: bool) -> (usize, usize) {
    let (group, place) = (lane / 4, lane % 4 * 2 + part);
    if is_transposed { (place, group) } else { (group, place) }
}

/// Loads matrices.
pub fn load_fragments(
    registers: &mut Registers,
    memory: &mut Memory<'_>,
    transfer: &FragmentTransfer,
) -> Result<(), Fault> {
    let addresses = addresses(registers, transfer.address);
    for (matrix, register) in transfer.rows.into_iter().take(usize::from(transfer.count)).enumerate() {
        let mut elements = [[0; 8]; 8];
        for (row, elements) in elements.iter_mut().enumerate() {
            let lane = matrix * 8 + row;
            let bytes = memory.read(transfer.address.space, addresses[lane], 16, lane)?;
            for (element, pair) in elements.iter_mut().zip(bytes.chunks_exact(2)) {
                *element = u32::from(u16::from_le_bytes([pair[0], pair[1]]));
            }
        }
        registers.small[usize::from(register)] = std::array::from_fn(|lane| {
            let [low, high] = [0, 1].map(|part| {
                let (row, column) = element(lane, part, transfer.is_transposed);
                elements[row][column]
            });
            high << 16 | low
        });
    }
    Ok(())
}

/// Stores matrices.
pub fn store_fragments(
    registers: &Registers,
    memory: &mut Memory<'_>,
    transfer: &FragmentTransfer,
) -> Result<(), Fault> {
    let addresses = addresses(registers, transfer.address);
    for (matrix, register) in transfer.rows.into_iter().take(usize::from(transfer.count)).enumerate() {
        let mut rows = [[0; 16]; 8];
        for (lane, word) in registers.small[usize::from(register)].iter().enumerate() {
            for part in 0..2 {
                let (row, column) = element(lane, part, transfer.is_transposed);
                rows[row][2 * column..2 * column + 2].copy_from_slice(&(half(*word, part) as u16).to_le_bytes());
            }
        }
        for (row, bytes) in rows.iter().enumerate() {
            let lane = matrix * 8 + row;
            memory.write(transfer.address.space, addresses[lane], bytes, lane)?;
        }
    }
    Ok(())
}
