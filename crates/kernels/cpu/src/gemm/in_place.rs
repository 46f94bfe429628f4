//! Products of blocks that are in cache already: tiles straight from the operands, nothing packed, one chain of fused
//! multiply-adds per element over all of K. The building block of kernels that multiply many small blocks.

use device::Element;

use super::Write;
use super::ahead::Ahead;
use super::kernels::Kernels;
use super::pack::Block;
use super::tile::Tile;
use crate::view::{MatMut, MatRef};

/// Lines asked for per tile. A tile of attention takes 400 to 900 cycles, in which a core gets as many from its L3
/// cache; many more at once would fill the queue of what is on its way, and the tile's own rows would wait after them.
const LINES_PER_TILE: usize = 16;

/// How the left operand is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// `a[M,K]`.
    RowMajor,
    /// `a[K,M]`.
    StepMajor,
}

/// `c[M,N]` is assigned or accumulated `a b[K,N]`; between tiles, what is needed next is asked for.
pub(crate) fn multiply(
    kernels: &Kernels,
    left: Left,
    a: MatRef<'_>,
    b: MatRef<'_>,
    mut c: MatMut<'_>,
    write: Write,
    ahead: &mut Ahead,
) {
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
            ahead.ask(LINES_PER_TILE);
            // SAFETY: the views hold the operands' memory for the shapes that were compared above, the tile is inside
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

/// `target[c][r] = source[r][c]` for `source[R,C]` of any type, widened, in rows of `target_stride` elements. Elements
/// of a target row from R on, up to a whole number of registers, become zero; `target_stride` must have room for them.
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

#[cfg(test)]
mod tests {
    use device::{Bf16, F16};

    use super::*;
    use crate::instruction_set::InstructionSet;

    /// All 65,536 numbers, 13 of them twice, in rows and columns that end within a register.
    fn assert_transposed<E: Element>(of: impl Fn(u16) -> E) {
        const ROWS: usize = 101;
        const COLS: usize = 649;
        const STRIDE: usize = 112;
        let source: Vec<E> = (0..ROWS * COLS).map(|i| of(i as u16)).collect();
        for set in InstructionSet::available() {
            let mut target = vec![-1.0; COLS * STRIDE];
            transpose(Kernels::of(set), MatRef::dense(&source, ROWS, COLS), &mut target, STRIDE);
            for (col, values) in target.chunks(STRIDE).enumerate() {
                for (row, &value) in values[..ROWS].iter().enumerate() {
                    let number = source[row * COLS + col];
                    let exact = number.widen();
                    let same = value.to_bits() == exact.to_bits() || value.is_nan() && exact.is_nan();
                    assert!(same, "{number:?} on {set:?}: {value:e}");
                }
            }
        }
    }

    #[test]
    fn every_narrow_number_is_widened_and_transposed_on_every_set() {
        assert_transposed(Bf16);
        assert_transposed(F16);
        assert_transposed(|bits| f32::from_bits(u32::from(bits) * 65_537));
    }
}
