//! Products of matrices, computed in `f32`, whose bits depend on the operands only.
//!
//! # Numerics
//! Each element of C is computed in the same way on every instruction set, for any number of rows and columns, any
//! strides and any split of the work:
//!
//! 1. K is cut into blocks of [`K_BLOCK`] steps, from step 0 on; the last may be shorter.
//! 2. Per block, in ascending order: `sum = 0`, then for each step in ascending order
//!    `sum = fused_multiply_add(a, b, sum)`, rounded once. With `Write::Assign` the first block's sum becomes `c`;
//!    otherwise `c = c + sum`.
//! 3. With a bias, `c = c + bias[column]` at the end.
//! 4. Where C is of a narrow type, all this happens in `f32`, and C is rounded once ([`gemm_rounded`]).
//!
//! So C's rows (and columns) may be computed in any number of calls, on any thread. Rounding error of an element, with
//! u = 2^-24 and n = min(K, K_BLOCK) + ceil(K / K_BLOCK) + 1 roundings on the longest path: at most
//! `n u / (1 - n u) * (sum |a b| + |c| + |bias|)`; with roundings that are independent and of mean zero it is about
//! `sqrt(n)` instead of `n`.
//!
//! # Structure
//! C is computed in tiles that fit the vector registers ([`tile`]). Around them, loops cut B into blocks for the L3
//! cache and A into blocks for L2 and copy them into the order in which tiles read them ([`pack`]), unless an operand
//! is read so little that the copy would not pay ([`blocks`]). This is the structure of K. Goto and R. van de Geijn,
//! "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.

pub(crate) mod ahead;
mod blocks;
mod cut;
pub(crate) mod in_place;
pub(crate) mod kernels;
mod operand;
mod pack;
mod packing_buffers;
pub(crate) mod pairs;
mod rounded;
pub(crate) mod tensor_cores;
pub(crate) mod tile;
mod vector;
#[cfg(target_arch = "x86_64")]
mod vector_avx2;
#[cfg(target_arch = "x86_64")]
mod vector_avx512;
mod vector_scalar;

pub use device::{Orientation, Write};
pub(crate) use operand::sizes;
pub use operand::{Operand, Product};
pub use packing_buffers::PackingBuffers;
pub use pairs::{PAIRS_BLOCK, PairsOperand, PairsProduct, TERMS_RUN, TermsProduct, gemm_pairs, gemm_terms};
pub use rounded::gemm_rounded;
pub use tensor_cores::{BlockRule, BlocksProduct, Narrow, PIECE, Term, gemm_blocks};

use crate::instruction_set::InstructionSet;
use crate::meter::Meter;
use crate::view::MatMut;
use blocks::Problem;
use kernels::Kernels;
use packing_buffers::PackedBuffers;

/// Steps of K per chain of fused multiply-adds. Part of the numerics: another value gives other bits.
pub const K_BLOCK: usize = 256;

/// Multiplies: `c[M,N]` is assigned or accumulated the product, plus `bias[N]` in each row if there is one. With K = 0
/// the product is zero. Counts M N K multiply-adds.
///
/// Panics if the shapes do not fit together, or on a machine without `instruction_set`.
pub fn gemm(
    product: Product<'_>,
    c: MatMut<'_>,
    write: Write,
    bias: Option<&[f32]>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (mut packed, _) = packing.packed();
    gemm_packed(product, c, write, bias, &mut packed, instruction_set, meter);
}

/// Panics unless C and the bias are those of a product of these sizes.
pub(crate) fn assert_fits(c: (usize, usize), bias: Option<usize>, sizes: (usize, usize)) {
    assert!(c == sizes, "c is {c:?}, the product is {sizes:?}");
    let columns = sizes.1;
    assert!(bias.is_none_or(|bias| bias == columns), "the bias is not of length {columns}");
}

/// Multiplies as [`gemm`] does, with its blocks packed in the given buffers.
fn gemm_packed(
    product: Product<'_>,
    mut c: MatMut<'_>,
    write: Write,
    bias: Option<&[f32]>,
    packed: &mut PackedBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (m, n, k) = product.sizes();
    assert_fits((c.rows(), c.cols()), bias.map(<[f32]>::len), (m, n));
    let problem = Problem {
        orientation: product.orientation,
        m,
        n,
        k,
        a: product.a.source(),
        b: product.b.source(),
        c: c.as_mut_ptr(),
        c_stride: c.row_stride(),
        write,
        bias: bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
    };
    // SAFETY: the views hold the operands' memory for the shapes that were just compared, C is borrowed exclusively,
    // and `Kernels::of` checks that the machine has the instructions.
    unsafe { blocks::multiply(Kernels::of(instruction_set), &problem, packed, meter) }
}
