//! Products whose result is stored in a narrow type: block by block in `f32`, then rounded once.

use super::cut::equal_blocks;
use super::packing_buffers::{BLOCK, MAX_COLUMNS, PackingBuffers};
use super::{Product, Write, assert_fits, gemm_packed};
use crate::copy::Copy;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Stored, run};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// Most rows of a block. B is packed again for each block of rows and A for each block of columns; the products of a
/// layer have fewer rows than columns, so blocks are high.
const MAX_ROWS: usize = 1024;
/// Columns of all tiles are a divisor of this: blocks end with whole tiles.
const COLUMNS: usize = 32;

/// Multiplies as [`super::gemm`] does, for a narrow C with a bias of its type. An element is the `f32` that `gemm`
/// would give for the same operands, rounded once; with `Write::Accumulate` the old value enters that sum.
///
/// Panics as [`super::gemm`].
pub fn gemm_rounded<E: Stored>(
    product: Product<'_>,
    mut c: MatMut<'_, E>,
    write: Write,
    bias: Option<&[E]>,
    packing: &mut PackingBuffers,
    instruction_set: InstructionSet,
    meter: &Meter,
) {
    let (m, n, _) = product.sizes();
    assert_fits((c.rows(), c.cols()), bias.map(<[E]>::len), (m, n));
    let (mut packed, stage) = packing.packed();
    let (stage, wide_bias) = stage.split_at_mut(BLOCK);
    let block_rows = equal_blocks(m, MAX_ROWS, 1);
    let block_columns = (BLOCK / block_rows / COLUMNS * COLUMNS).min(MAX_COLUMNS);
    for col in (0..n).step_by(block_columns) {
        let cols = block_columns.min(n - col);
        let bias = bias.map(|bias| {
            let from = MatRef::dense(&bias[col..col + cols], 1, cols);
            run(instruction_set, Copy { from, to: MatMut::dense(&mut wide_bias[..cols], 1, cols) });
            &wide_bias[..cols]
        });
        for row in (0..m).step_by(block_rows) {
            let rows = block_rows.min(m - row);
            let stage = &mut stage[..rows * cols];
            let mut target = c.block(row, rows, col, cols);
            match write {
                Write::Assign => {}
                Write::Accumulate => {
                    let to = MatMut::dense(stage, rows, cols);
                    run(instruction_set, Copy { from: target.as_ref(), to });
                }
            }
            let sums = MatMut::dense(stage, rows, cols);
            gemm_packed(product.block(row, rows, col, cols), sums, write, bias, &mut packed, instruction_set, meter);
            run(instruction_set, Copy { from: MatRef::dense(stage, rows, cols), to: target.reborrow() });
        }
    }
}
