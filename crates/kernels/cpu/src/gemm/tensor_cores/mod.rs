//! Products of matrices of bf16 or fp16, or rounded to it, in the order of NVIDIA's tensor cores, "in blocks", whose
//! bits depend on the operands only.
//!
//! # Numerics
//! This is what `wgmma` and `mma.sync` of Hopper and Blackwell and `tcgen05` do with products of bf16 or fp16 and
//! sums of single precision ([`BlockRule::BLOCKS16`]), and `mma.sync` of Ampere and Ada ([`BlockRule::BLOCKS8`]), as
//! public models have it that were compared with these devices bit by bit: Xie et al., "MMA-Sim" (arXiv 2511.10909,
//! 2025). An operand that is stored in `f32` is rounded to the type of the other one first, to nearest with ties to
//! even. Each element of C is computed in the same way on every instruction set, for any number of rows and columns,
//! any strides and any split of the work:
//!
//! 1. In a product `TN`, whose steps are tokens, K is cut into pieces of [`PIECE`] steps, from step 0 on; the last
//!    may be shorter. In all others K is one piece.
//! 2. A piece is cut into blocks of 16 (or 8) steps, from its first on; the last is filled up with zeros.
//! 3. Per piece, from `sum = +0` on, for each block in ascending order `sum = rule.add(sum, block)`:
//!    [`BlockRule::add`].
//! 4. With `Write::Assign` the first piece's sum becomes `c`; otherwise `c = c + sum`, rounded to nearest. With a
//!    bias, `c = c + bias[column]` at the end. Where C is of a narrow type, this happens in `f32`, and C is rounded
//!    once.
//!
//! `rule.add`, with F fraction bits (25 or 24): let E be the largest exponent of the terms that are not zero, at
//! least the rule's least one. A factor's exponent is the one that it is stored with, and that of the smallest normal
//! number where it is subnormal; a product's is the sum of its factors', so that it may have one bit more before its
//! point. Each term is cut off to a multiple of 2^(E - F), toward zero; these are added exactly; the sum is cut off
//! to 24 bits, or to a multiple of 2^-149, toward zero. From 2^128 on it is infinite. A zero is +0. One NaN, infinity
//! times zero or infinities of both signs make the NaN `0x7fffffff`; infinities of one sign, infinity. Zeros change
//! nothing, so neither do those that fill up a block, nor a block of them.
//!
//! Rounding error of an element, for the operands as they enter and sums that stay finite, with n = ceil(K / 16)
//! blocks of 17 terms: a block loses less than 17 units of 2^(E - 25), and 2^E is at most its largest term, and one
//! last place of its sum. `docs/numerics.md` derives the bound.
//!
//! # Structure
//! Operands are packed with their exponents ([`pack`]); tiles of one row and sixteen columns sum them block by block
//! ([`tile`]). Attention packs blocks of its own.

pub(crate) mod pack;
mod rule;
pub(crate) mod tile;
#[cfg(target_arch = "x86_64")]
mod tile_avx2;

pub use pack::Narrow;
pub use rule::{BlockRule, Term};

use std::ops::Range;

use config::Products;

use super::cut::Range as Part;
use super::packing_buffers::PackingBuffers;
use super::pairs::Finish;
use super::pairs::small::Adjacent;
use super::{Operand, Orientation, Product, Write, assert_fits};
use crate::copy::Copy;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Stored, run};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};
use pack::{PackedBuffer, Side, take};
use tile::Multiply;

/// Steps of a product over tokens that are summed before they are added to other steps. Part of the numerics:
/// accelerators sum pieces at the same time.
pub const PIECE: usize = Products::PIECE;

/// Rows, columns and steps that are packed at once: with the sums 1.3 MB.
const BLOCK: usize = 256;

/// Two matrices to multiply in the order of tensor cores.
#[derive(Clone, Copy, Debug)]
pub struct BlocksProduct<'a> {
    /// Operands, and which of the two is read transposed.
    pub factors: Product<'a>,
    /// The format to which factors of single precision are rounded.
    pub narrow: Narrow,
    /// How a block is added.
    pub rule: BlockRule,
}

/// Multiplies in blocks: `c[M,N]` is assigned or accumulated the product, plus `bias[N]` in each row if there is one.
/// With K = 0 the product is zero. Counts M N K multiply-adds.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn gemm_blocks<E: Stored>(
    product: BlocksProduct<'_>,
    mut c: MatMut<'_, E>,
    write: Write,
    bias: Option<&[E]>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (m, n, k) = product.factors.sizes();
    assert_fits((c.rows(), c.cols()), bias.map(<[E]>::len), (m, n));
    let mut memory = packing.bytes();
    let mut workspace = Workspace {
        rows: PackedBuffer::take(Side::Rows, product.narrow, (BLOCK, BLOCK), &mut memory),
        columns: PackedBuffer::take(Side::Columns, product.narrow, (BLOCK, BLOCK), &mut memory),
        sums: take(&mut memory, BLOCK * BLOCK),
        totals: take(&mut memory, BLOCK * BLOCK),
        instruction_set,
    };
    for row in (0..m).step_by(BLOCK) {
        for column in (0..n).step_by(BLOCK) {
            let [rows, columns] = [row..m.min(row + BLOCK), column..n.min(column + BLOCK)];
            let target = c.block(row, rows.len(), column, columns.len());
            let bias = bias.map(|bias| &bias[columns.clone()]);
            workspace.multiply(&product, [rows, columns], target, write, bias);
        }
    }
    meter.add_multiply_adds((m * n * k) as u64);
}

struct Workspace<'a> {
    rows: PackedBuffer<'a>,
    columns: PackedBuffer<'a>,
    /// Of one piece.
    sums: &'a mut [f32],
    /// Of all pieces so far.
    totals: &'a mut [f32],
    instruction_set: InstructionSet,
}

impl Workspace<'_> {
    /// Computes some rows and columns of the result.
    fn multiply<E: Stored>(
        &mut self,
        product: &BlocksProduct<'_>,
        place: [Range<usize>; 2],
        mut c: MatMut<'_, E>,
        write: Write,
        bias: Option<&[E]>,
    ) {
        let (_, _, k) = product.factors.sizes();
        let piece = match product.factors.orientation {
            Orientation::Tn => PIECE,
            Orientation::Nt | Orientation::Nn => k.max(1),
        };
        let (rows, columns, set) = (c.rows(), c.cols(), self.instruction_set);
        let len = rows * columns;
        if k <= piece {
            self.sum(product, &place, Part::all(k));
            let sums = MatRef::dense(&self.sums[..len], rows, columns);
            run(set, Finish { sums, c, write, bias });
            return;
        }
        for steps in Part::all(k).blocks(piece) {
            self.sum(product, &place, steps);
            let mut totals = MatMut::dense(&mut self.totals[..len], rows, columns);
            let write = if steps.start == 0 { write } else { Write::Accumulate };
            if (steps.start, write) == (0, Write::Accumulate) {
                run(set, Copy { from: c.as_ref(), to: totals.reborrow() });
            }
            run(set, Finish { sums: MatRef::dense(&self.sums[..len], rows, columns), c: totals, write, bias: None });
        }
        let totals = MatRef::dense(&self.totals[..len], rows, columns);
        run(set, Finish { sums: totals, c: c.reborrow(), write: Write::Assign, bias });
    }

    /// The sums of one piece.
    fn sum(&mut self, product: &BlocksProduct<'_>, [rows, columns]: &[Range<usize>; 2], steps: Part) {
        let sums = &mut self.sums[..rows.len() * columns.len()];
        sums.fill(0.0);
        let Product { orientation, a, b } = product.factors;
        let [of_a, of_b] = match orientation {
            Orientation::Nt => [Adjacent::Steps, Adjacent::Steps],
            Orientation::Nn => [Adjacent::Steps, Adjacent::Lanes],
            Orientation::Tn => [Adjacent::Lanes, Adjacent::Lanes],
        };
        for run_of_steps in steps.blocks(BLOCK) {
            pack(&mut self.rows, of_a, a, rows, run_of_steps);
            pack(&mut self.columns, of_b, b, columns, run_of_steps);
            let c = MatMut::dense(sums, rows.len(), columns.len());
            let (a, b) = (self.rows.packed(), self.columns.packed());
            let instruction_set = self.instruction_set;
            run(instruction_set, Multiply { rule: product.rule, instruction_set, a, b, c });
        }
    }
}

/// Packs some lanes and steps of an operand.
fn pack(buffer: &mut PackedBuffer<'_>, adjacent: Adjacent, operand: Operand<'_>, lanes: &Range<usize>, steps: Part) {
    let block = match adjacent {
        Adjacent::Steps => operand.block(lanes.start, lanes.len(), steps.start, steps.len),
        Adjacent::Lanes => operand.block(steps.start, steps.len, lanes.start, lanes.len()),
    };
    match block {
        Operand::F32(matrix) => buffer.pack(adjacent, matrix),
        Operand::Bf16(matrix) => buffer.pack(adjacent, matrix),
        Operand::F16(matrix) => buffer.pack(adjacent, matrix),
    }
}
