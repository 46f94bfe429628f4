//! The loops around the tiles: rows, columns and steps of a product in pairs, the packing of each, and the tiles of a block.

use device::Bf16;

use super::engine::{Adjacent, Begin, Engine, PairsTile, RowsOfC, padded};
use super::finish::Finish;
use super::panels::{Panels, Side};
use super::{PairsOperand, PairsProduct};
use crate::copy::Copy;
use crate::gemm::cut::{Range, equal_blocks};
use crate::gemm::packing_buffers::PairRooms;
use crate::gemm::{Orientation, Write};
use crate::instruction_set::InstructionSet;
use crate::lanes::{Stored, run};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// A product on its way through the loops.
pub(super) struct Pass<'a, E> {
    pub engine: &'static Engine,
    pub product: PairsProduct<'a>,
    /// (M, N, K)
    pub sizes: (usize, usize, usize),
    pub write: Write,
    pub bias: Option<&'a [E]>,
    pub instruction_set: InstructionSet,
    pub meter: &'a Meter,
}

/// How a product is cut.
struct Cut {
    /// Rows whose sums are kept between runs of steps.
    kept_rows: usize,
    /// Rows of a packed block of A.
    rows: usize,
    /// Columns of a packed block of B.
    columns: usize,
    /// A run of steps.
    steps: usize,
}

impl<E: Stored> Pass<'_, E> {
    /// Computes the product.
    pub(super) fn run(&self, mut c: MatMut<'_, E>, rooms: &mut PairRooms<'_>) {
        let (m, n, k) = self.sizes;
        if m == 0 || n == 0 {
            return;
        }
        let cut = self.cut(rooms);
        // SAFETY: `Engine::of` checked that the machine has the instructions.
        unsafe { (self.engine.enter)() };
        for kept in Range::all(m).blocks(cut.kept_rows) {
            for columns in Range::all(n).blocks(cut.columns) {
                for steps in Range::all(k).blocks(cut.steps) {
                    self.pack(Side::B, columns, steps, rooms.b, rooms.rounded);
                    for rows in kept.blocks(cut.rows) {
                        self.pack(Side::A, rows, steps, rooms.a, rooms.rounded);
                        self.tiles(&mut c, rows, (kept, columns, steps), rooms);
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { (self.engine.leave)() };
    }

    fn cut(&self, rooms: &PairRooms<'_>) -> Cut {
        let (m, n, k) = self.sizes;
        let Engine { panel_rows, panel_columns, a_step_bytes, b_step_bytes, most_steps, most_a_bytes, .. } =
            *self.engine;
        let steps = equal_blocks(k, most_steps, super::PAIRS_BLOCK);
        let fitting = |bytes: usize, step_bytes: usize, lanes: usize| bytes / (step_bytes * steps) * lanes;
        let most_rows = fitting(rooms.a.len().min(most_a_bytes), a_step_bytes, panel_rows);
        let most_columns = fitting(rooms.b.len(), b_step_bytes, panel_columns);
        if k <= steps {
            // Sums never leave a tile.
            let (rows, columns) =
                (equal_blocks(m, most_rows, panel_rows), equal_blocks(n, most_columns, panel_columns));
            return Cut { kept_rows: m, rows, columns, steps };
        }
        // A block of C whose sums fit into the room for them, about as high as wide.
        let kept = rooms.sums.len();
        let side = kept.isqrt();
        let columns =
            equal_blocks(n, most_columns.min(side.max(kept / m)) / panel_columns * panel_columns, panel_columns);
        let kept_rows = equal_blocks(m, kept / columns / panel_rows * panel_rows, panel_rows);
        Cut { kept_rows, rows: equal_blocks(kept_rows, most_rows, panel_rows), columns, steps }
    }

    /// Packs these rows of A or columns of B; what is to be rounded goes through the room for it, as many panels at a time as it holds.
    fn pack(&self, side: Side, lanes: Range, steps: Range, room: &mut [u8], rounded: &mut [Bf16]) {
        let (operand, panels) = self.panels(side);
        let (block, panel_bytes) = ((steps.start, steps.len), panels.bytes(steps.len));
        match operand {
            PairsOperand::Bf16(matrix) => {
                panels.pack(panels.block(matrix, (lanes.start, lanes.len), block), room);
            }
            PairsOperand::Rounded(matrix) => {
                let needed = panels.room(lanes.len, steps.len);
                assert!(needed <= room.len(), "{needed} bytes of panels in {}", room.len());
                let at_once = rounded.len() / padded(steps.len).max(1) / panels.lanes;
                let rooms = room.chunks_mut(at_once * panel_bytes.max(1));
                for (part, room) in lanes.blocks(at_once * panels.lanes).zip(rooms) {
                    let from = panels.block(matrix, (part.start, part.len), block);
                    let (rows, cols) = (from.rows(), from.cols());
                    let rounded = &mut rounded[..rows * cols];
                    run(self.instruction_set, Copy { from, to: MatMut::dense(rounded, rows, cols) });
                    panels.pack(MatRef::dense(rounded, rows, cols), room);
                }
            }
        }
    }

    /// An operand and its panels.
    fn panels(&self, side: Side) -> (PairsOperand<'_>, Panels) {
        let PairsProduct { orientation, a, b } = self.product;
        let adjacent = match (side, orientation) {
            (Side::A, Orientation::Nt | Orientation::Nn) | (Side::B, Orientation::Nt) => Adjacent::Steps,
            (Side::A, Orientation::Tn) | (Side::B, Orientation::Nn | Orientation::Tn) => Adjacent::Lanes,
        };
        let operand = match side {
            Side::A => a,
            Side::B => b,
        };
        (operand, Panels::of(self.engine, side, adjacent))
    }

    /// Runs all tiles of packed rows and columns, and writes those to C whose steps are done.
    fn tiles(
        &self,
        c: &mut MatMut<'_, E>,
        rows: Range,
        (kept, columns, steps): (Range, Range, Range),
        rooms: &mut PairRooms<'_>,
    ) {
        let Engine { panel_rows, panel_columns, a_step_bytes, b_step_bytes, .. } = *self.engine;
        let padded_steps = padded(steps.len);
        let is_last = steps.start + steps.len == self.sizes.2;
        let begin = if steps.start == 0 { Begin::Zero } else { Begin::Stored };
        let is_kept = begin == Begin::Stored || !is_last;
        let sums_of_tile = panel_rows * panel_columns;
        let tiles_across = columns.len.div_ceil(panel_columns);
        for (b_panel, column) in (0..columns.len).step_by(panel_columns).enumerate() {
            let tile_columns = panel_columns.min(columns.len - column);
            for (a_panel, row) in (0..rows.len).step_by(panel_rows).enumerate() {
                let tile_rows = panel_rows.min(rows.len - row);
                let row_of_tiles = (rows.start - kept.start + row) / panel_rows;
                let place = if is_kept { (row_of_tiles * tiles_across + b_panel) * sums_of_tile } else { 0 };
                let sums = &mut rooms.sums[place..place + sums_of_tile];
                let a = &rooms.a[a_panel * a_step_bytes * padded_steps..][..a_step_bytes * padded_steps];
                let b = &rooms.b[b_panel * b_step_bytes * padded_steps..][..b_step_bytes * padded_steps];
                let blocks = padded_steps / super::PAIRS_BLOCK;
                let mut c = c.block(rows.start + row, tile_rows, columns.start + column, tile_columns);
                let tile = PairsTile {
                    a: a.as_ptr(),
                    b: b.as_ptr(),
                    blocks,
                    begin,
                    sums: sums.as_mut_ptr(),
                    sums_stride: panel_columns,
                    rows_of_c: if is_last { RowsOfC::of(&mut c) } else { RowsOfC::NEAR },
                };
                // SAFETY: the slices hold the panels and the tile, `Engine::of` checked that the machine has the instructions, and
                // `run` has entered the engine on this thread.
                unsafe { (self.engine.tile)(&tile) };
                self.meter.add_multiply_adds((tile_rows * tile_columns * steps.len) as u64);
                if is_last {
                    let bias = self.bias.map(|bias| &bias[columns.start + column..][..tile_columns]);
                    let sums = MatRef::new(sums, tile_rows, tile_columns, panel_columns);
                    run(self.instruction_set, Finish { sums, c, write: self.write, bias });
                }
            }
        }
    }
}
