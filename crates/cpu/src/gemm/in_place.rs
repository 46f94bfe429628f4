//! Products of blocks that are in cache already: tiles straight from the operands, nothing packed, one chain of fused
//! multiply-adds per element over all of K. The building block of kernels that multiply many small blocks.

use device::Element;

use super::Write;
use super::kernels::Kernels;
use super::pack::Block;
use super::tile::Tile;
use crate::view::{MatMut, MatRef};

/// How the left operand lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// `a[M,K]`.
    RowMajor,
    /// `a[K,M]`.
    StepMajor,
}

/// `c[M,N]` is assigned or accumulated `a b[K,N]`.
pub(crate) fn multiply(kernels: &Kernels, left: Left, a: MatRef<'_>, b: MatRef<'_>, mut c: MatMut<'_>, write: Write) {
    let (tiles, row_stride, sizes) = match left {
        Left::RowMajor => (kernels.row_major, a.row_stride(), (a.rows(), a.cols())),
        Left::StepMajor => (kernels.step_major, 1, (a.cols(), a.rows())),
    };
    let (rows, columns, steps) = (c.rows(), c.cols(), b.rows());
    assert!(sizes == (rows, steps) && b.cols() == columns, "{left:?} {sizes:?} times {:?}", (steps, b.cols()));
    if rows == 0 || columns == 0 {
        return;
    }
    let panel_rows = rows.div_ceil(rows.div_ceil(kernels.max_rows()));
    let max_columns = kernels.max_columns();
    let (a_start, b_start, c_start) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    for column in (0..columns).step_by(max_columns) {
        let tile_columns = max_columns.min(columns - column);
        let vectors = tile_columns.div_ceil(kernels.lanes);
        for row in (0..rows).step_by(panel_rows) {
            let tile_rows = panel_rows.min(rows - row);
            // SAFETY: the views hold the operands' memory for the shapes that were compared above, the tile lies inside
            // of them, C is borrowed exclusively, and `Kernels::of` checked that the machine has the instructions.
            unsafe {
                tiles[tile_rows - 1][vectors - 1](&Tile {
                    steps,
                    a: a_start.add(row * row_stride),
                    a_stride: a.row_stride(),
                    b: b_start.add(column),
                    b_stride: b.row_stride(),
                    c: c_start.add(row * c.row_stride() + column),
                    c_stride: c.row_stride(),
                    columns: tile_columns,
                    write,
                    bias: std::ptr::null(),
                });
            }
        }
    }
}

/// `target[c][r] = source[r][c]` for `source[R,C]` of any type, widened, in rows of `target_stride` elements. Elements of a target row from R
/// on, up to a whole number of registers, become zero; `target_stride` must have room for them.
pub(crate) fn transpose<E: Element>(
    kernels: &Kernels,
    source: MatRef<'_, E>,
    target: &mut [f32],
    target_stride: usize,
) {
    let padded = source.rows().next_multiple_of(kernels.lanes);
    assert!(padded <= target_stride && source.cols() * target_stride <= target.len(), "no room for the transpose");
    if source.rows() == 0 {
        return;
    }
    let block = Block {
        source: source.as_ptr().cast(),
        source_stride: source.row_stride(),
        lanes: source.rows(),
        steps: source.cols(),
        target: target.as_mut_ptr(),
        panel: target_stride,
        panel_stride: 0,
        panel_lanes: target_stride,
    };
    // SAFETY: the view holds the source's memory, the target has room for its columns as rows of whole registers, and
    // `Kernels::of` checked that the machine has the instructions.
    unsafe { (kernels.pack(E::DTYPE).transposed)(&block) }
}
