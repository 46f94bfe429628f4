//! Products of matrices of bf16, or rounded to it, in the order of AMX (`products = "pairs"`), whose bits depend on the
//! operands only.
//!
//! # Numerics
//! This is what the instruction `TDPBF16PS` does with 32 steps of K, continued over all of K. An operand that is stored
//! in `f32` is rounded to bf16 first, to nearest with ties to even. Each element of C is computed in the same way on
//! every instruction set, for any number of rows and columns, any strides and any split of the work:
//!
//! 1. K is cut into blocks of [`PAIRS_BLOCK`] steps, from step 0 on; the last is filled up with zeros.
//! 2. Per block `even = odd = +0`, then for each pair of steps in ascending order `even = fused_multiply_add(a, b,
//!    even)` with the first step and `odd = fused_multiply_add(a, b, odd)` with the second.
//! 3. From `sum = +0` on, for each block in ascending order, `sum = sum + (even + odd)`.
//! 4. With `Write::Assign` the sum becomes `c`, otherwise `c = c + sum`; with a bias, `c = c + bias[column]` at the
//!    end. Where C is of a narrow type, this happens in `f32`, and C is rounded once.
//!
//! In 2 and 3 each operation is rounded once, to nearest with ties to even, to 24 bits with an exponent of any size.
//! Operands and results that are below the smallest normal number, 2^-126, are zeros of their sign; a value too large
//! for `f32` is infinite. In 4 subnormal numbers are numbers, as everywhere else. The bits of a NaN are left open.
//!
//! Rounding error of an element, for the operands as they enter and sums that stay finite, with u = 2^-24 and n =
//! min(K, 32) / 2 + ceil(K / 32) + 3 roundings on the longest path (half a block, the sum of its two halves, one per
//! block, `c` and the bias): at most `n u / (1 - n u) * (sum |a b| + |c| + |bias|)`, and for numbers that become zero
//! `2^-126 * (K + sum |a| + sum |b| + 2 ceil(K / 32))`: one for each subnormal operand times what it is multiplied
//! with, and one for each operation. At K = 8,192 n is 275, where chained products have 289.
//!
//! # Structure
//! Operands are packed into panels ([`engine`]) for the instruction set: AMX reads pairs as they are, the others read
//! them widened, with the same loops around ([`blocks`]). Sums of a tile of C stay in registers, or in memory between
//! two runs of steps; when the last step is done a tile is written to C at once ([`finish`]), while its sums are in the
//! cache. Attention packs and multiplies blocks of its own ([`small`]). Products of single precision are six of these
//! for each block of steps ([`terms`]).

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
mod blocks;
mod engine;
mod finish;
#[cfg(target_arch = "x86_64")]
mod pack_pairs;
#[cfg(target_arch = "x86_64")]
mod pack_terms;
mod pack_widened;
mod panels;
mod rounds;
pub(crate) mod small;
mod terms;
mod tile;
mod tile_scalar;
#[cfg(target_arch = "x86_64")]
mod tile_vectors;
mod workspace;

use device::Bf16;

use super::packing_buffers::PackingBuffers;
use super::{Operand, Orientation, Product, Write, assert_fits};
use crate::instruction_set::InstructionSet;
use crate::lanes::Stored;
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};
pub(crate) use blocks::{Entering, Factors, Pass, Target, TermProducts};
use engine::Engine;
pub(crate) use finish::Finish;
pub(crate) use rounds::Round;
pub use terms::TERMS_RUN;
pub(crate) use workspace::RankWorkspace;

/// Steps of K whose products are summed in two chains. Part of the numerics, and of the instruction.
pub const PAIRS_BLOCK: usize = 32;

/// A matrix to multiply in AMX order.
#[derive(Clone, Copy, Debug)]
pub enum PairsOperand<'a> {
    /// Of bf16.
    Bf16(MatRef<'a, Bf16>),
    /// Of `f32`, each number of which enters rounded to bf16.
    Rounded(MatRef<'a>),
}

impl<'a> From<PairsOperand<'a>> for Operand<'a> {
    fn from(operand: PairsOperand<'a>) -> Self {
        match operand {
            PairsOperand::Bf16(matrix) => Operand::Bf16(matrix),
            PairsOperand::Rounded(matrix) => Operand::F32(matrix),
        }
    }
}

/// Two matrices to multiply in AMX order.
#[derive(Clone, Copy, Debug)]
pub struct PairsProduct<'a> {
    /// Which of the two is read transposed.
    pub orientation: Orientation,
    /// The left operand.
    pub a: PairsOperand<'a>,
    /// The right operand.
    pub b: PairsOperand<'a>,
}

/// Two matrices of single precision to multiply in terms.
#[derive(Clone, Copy, Debug)]
pub struct TermsProduct<'a> {
    /// Which of the two is read transposed.
    pub orientation: Orientation,
    /// The left operand.
    pub a: MatRef<'a>,
    /// The right operand.
    pub b: MatRef<'a>,
}

/// Multiplies in AMX order: `c[M,N]` is assigned or accumulated the product, plus `bias[N]` in each row if there is
/// one. With K = 0 the product is zero. Counts M N K multiply-adds.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn gemm_pairs<E: Stored>(
    product: PairsProduct<'_>,
    c: MatMut<'_, E>,
    write: Write,
    bias: Option<&[E]>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let PairsProduct { orientation, a, b } = product;
    let factors = Factors { orientation, operands: [a, b].map(Entering::Pairs), term_products: TermProducts::One };
    multiply_alone(factors, c, write, bias, packing, instruction_set, meter);
}

/// Multiplies in terms, as [`gemm_pairs`] does.
pub fn gemm_terms(
    product: TermsProduct<'_>,
    c: MatMut<'_>,
    write: Write,
    bias: Option<&[f32]>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let TermsProduct { orientation, a, b } = product;
    let factors = Factors { orientation, operands: [a, b].map(Entering::Terms), term_products: TermProducts::Six };
    multiply_alone(factors, c, write, bias, packing, instruction_set, meter);
}

/// Multiplies on the calling thread.
pub(crate) fn multiply_alone<E: Stored>(
    factors: Factors<'_>,
    mut c: MatMut<'_, E>,
    write: Write,
    bias: Option<&[E]>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let pass = Pass::new(factors, instruction_set);
    pass.assert_fits((c.rows(), c.cols()), bias.map(<[E]>::len));
    let (mut own, workspace) = packing.workspace_for_all();
    for round in pass.rounds(workspace.sizes, 1) {
        for part in 0..round.number_of_packing_parts() {
            // SAFETY: this thread is the only one.
            unsafe { pass.pack_common(&round, part, workspace, own.rounded) };
        }
        for strip in 0..round.number_of_strips() {
            let Some([rows, columns]) = round.rows_and_columns(strip) else { continue };
            let c = c.block(rows.start, rows.len(), columns.start, columns.len());
            let target = Target { c, write, bias: bias.map(|bias| &bias[columns]) };
            // SAFETY: as above, and all parts have been packed.
            unsafe { pass.multiply_strip(&round, strip, target, workspace, &mut own, meter) };
        }
    }
}

impl<'a> Pass<'a> {
    /// Panics if the operands do not fit together, or on a machine without `instruction_set`.
    pub(crate) fn new(factors: Factors<'a>, instruction_set: InstructionSet) -> Self {
        let [a, b] = factors.operands.map(|operand| match operand {
            Entering::Pairs(operand) => operand.into(),
            Entering::Terms(matrix) => Operand::F32(matrix),
        });
        let sizes = Product { orientation: factors.orientation, a, b }.sizes();
        Pass { engine: Engine::of(instruction_set), factors, sizes, instruction_set }
    }

    /// Panics unless the product is of these rows and columns, and a bias of this length.
    pub(crate) fn assert_fits(&self, c: (usize, usize), bias: Option<usize>) {
        let (m, n, _) = self.sizes;
        assert_fits(c, bias, (m, n));
    }
}
