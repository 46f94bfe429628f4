//! Products of matrices by a warp, and their fragments in shared memory.

use super::exact::Format;
use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::registers::{LANES, Lanes, Registers};
use super::tensor_core::{COLUMNS, Factors, Rule, add_block, format_of, special_sum};
use super::transfer::addresses;
use super::warpgroups::Operands as WarpgroupOperands;
use crate::code::{FragmentTransfer, MatrixProduct, NumberFormat, Row};

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
    let block = Block::new(format_of(product.format), rule, usize::from(product.depth), operands.b);
    for (row, a) in operands.a.iter().enumerate() {
        let mut sums = row_of(registers, &product.c, row);
        block.add(a, &mut sums);
        put_row(registers, &product.d, row, &sums);
    }
}

/// Row `row` of 16 x 8 results in 4 registers: lane 4 g + p has columns 2 p and 2 p + 1 of rows g and g + 8.
fn place(row: usize, column: usize) -> (usize, usize) {
    (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2)
}

#[inline(always)]
fn row_of(registers: &Registers, rows: &[Row], row: usize) -> [f32; COLUMNS] {
    std::array::from_fn(|column| {
        let (register, lane) = place(row, column);
        f32::from_bits(registers.small[usize::from(rows[register])][lane])
    })
}

#[inline(always)]
fn put_row(registers: &mut Registers, rows: &[Row], row: usize, sums: &[f32; COLUMNS]) {
    for (column, sum) in sums.iter().enumerate() {
        let (register, lane) = place(row, column);
        registers.small[usize::from(rows[register])][lane] = sum.to_bits();
    }
}

/// A part of the second factor: 8 columns.
struct Block {
    format: Format,
    rule: Rule,
    depth: usize,
    bits: [[u32; COLUMNS]; 16],
    b: [Factors<COLUMNS>; 16],
    is_special: bool,
}

impl Block {
    #[inline(always)]
    fn new(format: Format, rule: Rule, depth: usize, bits: [[u32; COLUMNS]; 16]) -> Block {
        let b: [Factors<COLUMNS>; 16] = std::array::from_fn(|step| Factors::new(format, &bits[step]));
        let is_special = b.iter().any(|b| b.is_any_special);
        Block { format, rule, depth, bits, b, is_special }
    }

    /// Adds the products of a row of the first factor to a row of sums.
    #[inline(always)]
    fn add(&self, a_bits: &[u32; 16], sums: &mut [f32; COLUMNS]) {
        self.add_factors(a_bits, &Factors::new(self.format, a_bits), sums);
    }

    #[inline(always)]
    fn add_factors(&self, a_bits: &[u32; 16], a: &Factors<16>, sums: &mut [f32; COLUMNS]) {
        for first in (0..self.depth).step_by(self.rule.steps) {
            let end = self.depth.min(first + self.rule.steps);
            let is_special = self.is_special || a.is_any_special || sums.iter().any(|sum| !sum.is_finite());
            let before = *sums;
            if is_special {
                *sums = sums.map(|sum| if sum.is_finite() { sum } else { 0.0 });
            }
            add_block(self.rule, self.format, a, &self.b, first..end, sums);
            if is_special {
                for column in 0..COLUMNS {
                    let pairs: Vec<(u32, u32)> =
                        (first..end).map(|step| (a_bits[step], self.bits[step][column])).collect();
                    if let Some(special) = special_sum(self.format, &pairs, before[column]) {
                        sums[column] = special;
                    }
                }
            }
        }
    }
}

/// Computes a warp's part of a product of a warpgroup.
#[inline(always)]
pub fn warpgroup_product(registers: &mut Registers, operands: &WarpgroupOperands, format: NumberFormat, rule: Rule) {
    let format = format_of(format);
    let a_bits: Vec<[u32; 16]> = operands.a.iter().map(|row| row.map(u32::from)).collect();
    let a: Vec<Factors<16>> = a_bits.iter().map(|row| Factors::new(format, row)).collect();
    for (columns, rows) in operands.b.chunks_exact(COLUMNS).zip(operands.d.chunks_exact(4)) {
        let bits = std::array::from_fn(|step| std::array::from_fn(|column| u32::from(columns[column][step])));
        let block = Block::new(format, rule, 16, bits);
        for (row, (a_bits, a)) in a_bits.iter().zip(&a).enumerate() {
            let mut sums = if operands.adds { row_of(registers, rows, row) } else { [0.0; COLUMNS] };
            block.add_factors(a_bits, a, &mut sums);
            put_row(registers, rows, row, &sums);
        }
    }
}

/// The first factor `a[row][k]` of a product of 16 rows from its 4 registers.
pub fn first_factor(registers: &Registers, rows: [Row; 4]) -> [[u16; 16]; ROWS] {
    let mut a = [[0; 16]; ROWS];
    for (register, row) in rows.into_iter().enumerate() {
        for (lane, word) in registers.small[usize::from(row)].iter().enumerate() {
            for part in 0..2 {
                a[register % 2 * 8 + lane / 4][register / 2 * 8 + lane % 4 * 2 + part] = half(*word, part) as u16;
            }
        }
    }
    a
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
