//! The loops around the tiles: blocks of N, K and M, the packing of each, and the tiles of a block.

use device::Dtype;

use super::cut::{Range, equal_blocks};
use super::kernels::{Kernels, MAX_VECTORS};
use super::pack::Block;
use super::packing_buffers::PackedBuffers;
use super::tile::{Tile, TileKernel};
use super::{K_BLOCK, Orientation, Write};
use crate::meter::Meter;

/// Rows of A per packed block: with [`K_BLOCK`] steps, 256 KiB that stay in the L2 cache.
const M_BLOCK: usize = 256;
/// Columns of B per packed block: with [`K_BLOCK`] steps, 2 MiB that stay in the L3 cache.
const N_BLOCK: usize = 2048;
/// Columns of B per packed block where no second block of rows reads it: 256 KiB that stay in the L2 cache until they
/// are read.
const READ_ONCE: usize = 256;

/// Elements of a packed block of A: on AVX2, 43 panels of 6 rows and 2 of padding (nineteen of 14 + 2 on AVX-512).
pub(super) const PACKED_A: usize = M_BLOCK.div_ceil(6) * 8 * K_BLOCK;
/// Elements of a packed block of B.
pub(super) const PACKED_B: usize = N_BLOCK * K_BLOCK;

/// A step-major or row-major A is read in place for at most this many columns.
const DIRECT_A_COLUMNS: usize = 64;
/// A row-major B is read in place for at most this many rows.
const DIRECT_B_ROWS: usize = 56;

/// An operand as it is in memory, of any type of real numbers.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// Element (0, 0).
    pub start: *const u8,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Source {
    /// The address `offset` elements after the first.
    ///
    /// # Safety
    /// That element, or the one before it, is inside the operand.
    unsafe fn at(self, offset: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { self.start.add(offset * self.dtype.size_bytes()) }
    }

    /// The address as one of `f32`, which tiles can read in place.
    fn in_place(self, address: *const u8) -> Option<*const f32> {
        (self.dtype == Dtype::F32).then(|| address.cast())
    }
}

/// A product as addresses; strides are those of rows as they are in memory.
pub(super) struct Problem {
    pub orientation: Orientation,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Source,
    pub b: Source,
    pub c: *mut f32,
    pub c_stride: usize,
    pub write: Write,
    pub bias: *const f32,
}

/// A block of A or B, in place or packed, as tiles read it.
struct Panels {
    start: *const f32,
    /// From one panel to the next.
    panel_stride: usize,
    /// The tile's stride of this operand.
    stride: usize,
}

/// A block of A.
struct LeftPanels {
    panels: Panels,
    /// Of each panel but the last, which may have fewer.
    rows: usize,
    /// The kernels that read it.
    tiles: &'static [[TileKernel; MAX_VECTORS]],
}

/// Computes the product.
///
/// # Safety
/// The problem's addresses are valid for its shape, nothing else has access to C, and the machine has the instructions
/// of the kernels.
pub(super) unsafe fn multiply(kernels: &Kernels, problem: &Problem, packed: &mut PackedBuffers, meter: &Meter) {
    if problem.m == 0 || problem.n == 0 {
        return;
    }
    assert!(packed.a.len() >= PACKED_A && packed.b.len() >= PACKED_B, "buffers for packed blocks");
    // SAFETY: the caller's promise, and the buffers are large enough.
    unsafe {
        if problem.m <= M_BLOCK {
            multiply_row_block(kernels, problem, packed, meter);
        } else {
            multiply_row_blocks(kernels, problem, packed, meter);
        }
    }
}

/// With one block of rows each block of B is read once: A is packed once per block of steps, and B in strips that are
/// read at once.
///
/// # Safety
/// As for [`multiply`], with buffers for the packed blocks.
unsafe fn multiply_row_block(kernels: &Kernels, problem: &Problem, packed: &mut PackedBuffers, meter: &Meter) {
    let rows = Range::all(problem.m);
    let block_columns = equal_blocks(problem.n, READ_ONCE, kernels.max_columns());
    for steps in Range::all(problem.k).blocks(K_BLOCK) {
        // SAFETY: the blocks are inside A, B and C, and the packed forms of A and B inside their buffers.
        unsafe {
            let a = left_panels(kernels, problem, rows, steps, packed.a.as_mut_ptr());
            for columns in Range::all(problem.n).blocks(block_columns) {
                let b = right_panels(kernels, problem, columns, steps, packed.b.as_mut_ptr());
                run_tiles(kernels, problem, &CBlock { rows, columns, steps }, &a, &b, meter);
            }
        }
    }
}

/// With several blocks of rows each of them reads a packed block of B again.
///
/// # Safety
/// As for [`multiply`], with buffers for the packed blocks.
unsafe fn multiply_row_blocks(kernels: &Kernels, problem: &Problem, packed: &mut PackedBuffers, meter: &Meter) {
    let block_rows = equal_blocks(problem.m, M_BLOCK, kernels.max_rows());
    let block_columns = equal_blocks(problem.n, N_BLOCK, kernels.max_columns());
    for columns in Range::all(problem.n).blocks(block_columns) {
        for steps in Range::all(problem.k).blocks(K_BLOCK) {
            // SAFETY: the blocks are inside A, B and C, and the packed forms of A and B inside their buffers.
            unsafe {
                let b = right_panels(kernels, problem, columns, steps, packed.b.as_mut_ptr());
                for rows in Range::all(problem.m).blocks(block_rows) {
                    let a = left_panels(kernels, problem, rows, steps, packed.a.as_mut_ptr());
                    run_tiles(kernels, problem, &CBlock { rows, columns, steps }, &a, &b, meter);
                }
            }
        }
    }
}

/// A block of A as panels, packed if that pays.
///
/// # Safety
/// As for [`multiply`]; `packed` has room for `PACKED_A` elements.
unsafe fn left_panels(kernels: &Kernels, problem: &Problem, rows: Range, steps: Range, packed: *mut f32) -> LeftPanels {
    // As many panels as needed, of as equal heights as possible.
    let panel_rows = equal_blocks(rows.len, kernels.max_rows(), 1);
    let (stride, pack) = (problem.a.stride, kernels.pack(problem.a.dtype));
    let (offset, row_stride, in_place, pack) = match problem.orientation {
        Orientation::Nt | Orientation::Nn => {
            let offset = rows.start * stride + steps.start;
            (offset, stride, kernels.row_major, pack.transposed)
        }
        Orientation::Tn => {
            let offset = steps.start * stride + rows.start;
            (offset, 1, kernels.step_major, pack.copied)
        }
    };
    // SAFETY: the offset is that of the block's first element, or of the end of A if the block is empty.
    let source = unsafe { problem.a.at(offset) };
    if problem.n <= DIRECT_A_COLUMNS
        && let Some(start) = problem.a.in_place(source)
    {
        let panels = Panels { start, panel_stride: panel_rows * row_stride, stride };
        return LeftPanels { panels, rows: panel_rows, tiles: in_place };
    }
    let panel = kernels.lanes;
    let block = Block {
        source,
        source_stride: stride,
        lanes: rows.len,
        steps: steps.len,
        target: packed,
        panel,
        panel_stride: panel * steps.len,
        panel_lanes: panel_rows,
    };
    assert!(rows.len.div_ceil(panel_rows) * block.panel_stride <= PACKED_A, "packed block of A");
    // SAFETY: the source is a block of A, and the assertion says that the panels fit.
    unsafe { pack(&block) };
    let panels = Panels { start: packed, panel_stride: block.panel_stride, stride: panel };
    LeftPanels { panels, rows: panel_rows, tiles: kernels.step_major }
}

/// A block of B as panels of the kernels' columns, packed if that is needed or pays.
///
/// # Safety
/// As for [`multiply`]; `packed` has room for `PACKED_B` elements.
unsafe fn right_panels(kernels: &Kernels, problem: &Problem, columns: Range, steps: Range, packed: *mut f32) -> Panels {
    let (stride, pack) = (problem.b.stride, kernels.pack(problem.b.dtype));
    let panel = kernels.max_columns();
    let (offset, pack) = match problem.orientation {
        Orientation::Nt => (columns.start * stride + steps.start, pack.transposed),
        Orientation::Nn | Orientation::Tn => (steps.start * stride + columns.start, pack.copied),
    };
    // SAFETY: the offset is that of the block's first element, or of the end of B if the block is empty.
    let source = unsafe { problem.b.at(offset) };
    let row_major = !matches!(problem.orientation, Orientation::Nt);
    if row_major
        && problem.m <= DIRECT_B_ROWS
        && let Some(start) = problem.b.in_place(source)
    {
        return Panels { start, panel_stride: panel, stride };
    }
    let block = Block {
        source,
        source_stride: stride,
        lanes: columns.len,
        steps: steps.len,
        target: packed,
        panel,
        panel_stride: panel * steps.len,
        panel_lanes: panel,
    };
    assert!(columns.len.div_ceil(panel) * block.panel_stride <= PACKED_B, "packed block of B");
    // SAFETY: the source is a block of B, and the assertion says that the panels fit.
    unsafe { pack(&block) };
    Panels { start: packed, panel_stride: block.panel_stride, stride: panel }
}

/// A block of C and the steps of K that are added to it.
struct CBlock {
    rows: Range,
    columns: Range,
    steps: Range,
}

/// Runs all tiles of a block of C.
///
/// # Safety
/// As for [`multiply`]; the panels hold the block's rows, columns and steps.
unsafe fn run_tiles(kernels: &Kernels, problem: &Problem, block: &CBlock, a: &LeftPanels, b: &Panels, meter: &Meter) {
    let CBlock { rows, columns, steps } = *block;
    let LeftPanels { panels: ref a, rows: panel_rows, tiles } = *a;
    let is_first = steps.start == 0;
    let is_last = steps.start + steps.len == problem.k;
    let write = if is_first { problem.write } else { Write::Accumulate };
    let max_columns = kernels.max_columns();
    for (b_panel, column) in (0..columns.len).step_by(max_columns).enumerate() {
        let tile_columns = max_columns.min(columns.len - column);
        let vectors = tile_columns.div_ceil(kernels.lanes);
        for (a_panel, row) in (0..rows.len).step_by(panel_rows).enumerate() {
            let tile_rows = panel_rows.min(rows.len - row);
            // SAFETY: the tile is inside the block of C, and its operands inside the panels; the kernel is the one
            // for its rows and registers.
            unsafe {
                let column_of_c = columns.start + column;
                let tile = Tile {
                    steps: steps.len,
                    a: a.start.add(a_panel * a.panel_stride),
                    a_stride: a.stride,
                    b: b.start.add(b_panel * b.panel_stride),
                    b_stride: b.stride,
                    c: problem.c.add((rows.start + row) * problem.c_stride + column_of_c),
                    c_stride: problem.c_stride,
                    columns: tile_columns,
                    write,
                    bias: if is_last && !problem.bias.is_null() {
                        problem.bias.add(column_of_c)
                    } else {
                        std::ptr::null()
                    },
                };
                tiles[tile_rows - 1][vectors - 1](&tile);
            }
            meter.add_multiply_adds((tile_rows * tile_columns * steps.len) as u64);
        }
    }
}
