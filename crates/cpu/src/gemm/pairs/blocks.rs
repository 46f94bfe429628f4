//! The loops around the tiles: rows, columns and steps of a product in pairs, the packing of each, and the tiles of a block.

use device::Bf16;

use super::engine::{Adjacent, Begin, Engine, PairsTile, RowsOfC, padded};
use super::finish::Finish;
use super::panels::{Packed, Panels, Side};
use super::{PAIRS_BLOCK, PARTS_RUN, PairsOperand};
use crate::copy::Copy;
use crate::gemm::cut::{Range, equal_blocks};
use crate::gemm::packing_buffers::PairRooms;
use crate::gemm::{Orientation, Write};
use crate::instruction_set::InstructionSet;
use crate::lanes::{Stored, run};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// How a matrix enters.
#[derive(Clone, Copy)]
pub(super) enum Entering<'a> {
    Pairs(PairsOperand<'a>),
    Parts(MatRef<'a>),
}

/// What is multiplied of each pair of operands.
#[derive(Clone, Copy)]
pub(super) enum Terms {
    /// The two as they entered; a sum goes on over all of K.
    One,
    /// The products of their parts; a sum goes on for [`PARTS_RUN`] steps.
    Six,
}

impl Terms {
    /// Numbers of bf16 in a panel for each that enters.
    fn parts(self) -> usize {
        match self {
            Terms::One => <Bf16 as Packed>::PARTS,
            Terms::Six => <f32 as Packed>::PARTS,
        }
    }
}

/// What is multiplied.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    pub orientation: Orientation,
    /// A and B, which enter as `terms` has them.
    pub operands: [Entering<'a>; 2],
    pub terms: Terms,
}

/// A product on its way through the loops.
pub(super) struct Pass<'a, E> {
    pub engine: &'static Engine,
    pub factors: Factors<'a>,
    /// (M, N, K)
    pub sizes: (usize, usize, usize),
    pub write: Write,
    pub bias: Option<&'a [E]>,
    pub instruction_set: InstructionSet,
    pub meter: &'a Meter,
}

/// Bytes of B that one block of rows reads at once: they stay in the L2 cache beside it.
const READ_AT_ONCE: usize = 300 << 10;

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

/// How the sums of some steps enter C.
struct End<'a, E> {
    write: Write,
    bias: Option<&'a [E]>,
}

impl<E: Stored> Pass<'_, E> {
    /// Computes the product.
    pub(super) fn run(&self, mut c: MatMut<'_, E>, rooms: &mut PairRooms<'_>) {
        let (m, n, _) = self.sizes;
        if m == 0 || n == 0 {
            return;
        }
        let cut = self.cut(rooms);
        // SAFETY: `Engine::of` checked that the machine has the instructions.
        unsafe { (self.engine.enter)() };
        match self.factors.terms {
            Terms::Six if m <= cut.rows => self.multiply_beside_rows(&mut c, &cut, rooms),
            Terms::One | Terms::Six => self.multiply_blocks(&mut c, &cut, rooms),
        }
        // SAFETY: as above.
        unsafe { (self.engine.leave)() };
    }

    /// Computes the product block by block: B is packed once, A once for each block of columns.
    fn multiply_blocks(&self, c: &mut MatMut<'_, E>, cut: &Cut, rooms: &mut PairRooms<'_>) {
        let (m, n, k) = self.sizes;
        for kept in Range::all(m).blocks(cut.kept_rows) {
            for columns in Range::all(n).blocks(cut.columns) {
                for steps in Range::all(k).blocks(cut.steps) {
                    self.pack(Side::B, columns, steps, rooms.b, rooms.rounded);
                    for rows in kept.blocks(cut.rows) {
                        self.pack(Side::A, rows, steps, rooms.a, rooms.rounded);
                        self.tiles(c, rows, (kept, columns, steps), rooms);
                    }
                }
            }
        }
    }

    /// Computes the product with one block of rows: A is packed once for each run of steps, and B in pieces that are read at once.
    fn multiply_beside_rows(&self, c: &mut MatMut<'_, E>, cut: &Cut, rooms: &mut PairRooms<'_>) {
        let (m, n, k) = self.sizes;
        let rows = Range::all(m);
        for steps in Range::all(k).blocks(cut.steps) {
            self.pack(Side::A, rows, steps, rooms.a, rooms.rounded);
            for columns in Range::all(n).blocks(cut.columns) {
                self.pack(Side::B, columns, steps, rooms.b, rooms.rounded);
                self.tiles(c, rows, (rows, columns, steps), rooms);
            }
        }
    }

    fn cut(&self, rooms: &PairRooms<'_>) -> Cut {
        let (m, n, k) = self.sizes;
        let Engine { panel_rows, panel_columns, a_step_bytes, b_step_bytes, most_steps, most_a_bytes, .. } =
            *self.engine;
        let steps = match self.factors.terms {
            Terms::One => equal_blocks(k, most_steps, PAIRS_BLOCK),
            Terms::Six => padded(k).clamp(PAIRS_BLOCK, PARTS_RUN),
        };
        let panel_step = self.factors.terms.parts() * steps;
        let fitting = |bytes: usize, step_bytes: usize, lanes: usize| bytes / (step_bytes * panel_step) * lanes;
        let most_rows = fitting(rooms.a.len().min(most_a_bytes), a_step_bytes, panel_rows);
        let most_columns = fitting(rooms.b.len(), b_step_bytes, panel_columns);
        let most_at_once = fitting(READ_AT_ONCE, b_step_bytes, panel_columns).max(panel_columns);
        let blocks = |most_columns: usize| {
            let (rows, columns) =
                (equal_blocks(m, most_rows, panel_rows), equal_blocks(n, most_columns, panel_columns));
            Cut { kept_rows: m, rows, columns, steps }
        };
        match self.factors.terms {
            // Sums enter C after each run.
            Terms::Six if m <= most_rows => blocks(most_columns.min(most_at_once)),
            Terms::Six => blocks(most_columns),
            // Sums never leave a tile but for C.
            Terms::One if k <= steps => blocks(most_columns),
            Terms::One => {
                // A block of C whose sums fit into the room for them, about as high as wide.
                let kept = rooms.sums.len();
                let most_columns = most_columns.min(kept.isqrt().max(kept / m)) / panel_columns * panel_columns;
                let columns = equal_blocks(n, most_columns, panel_columns);
                let kept_rows = equal_blocks(m, kept / columns / panel_rows * panel_rows, panel_rows);
                Cut { kept_rows, rows: equal_blocks(kept_rows, most_rows, panel_rows), columns, steps }
            }
        }
    }

    /// Packs these rows of A or columns of B; what is to be rounded goes through the room for it, as many panels at a time as it holds.
    fn pack(&self, side: Side, lanes: Range, steps: Range, room: &mut [u8], rounded: &mut [Bf16]) {
        let adjacent = match (side, self.factors.orientation) {
            (Side::A, Orientation::Nt | Orientation::Nn) | (Side::B, Orientation::Nt) => Adjacent::Steps,
            (Side::A, Orientation::Tn) | (Side::B, Orientation::Nn | Orientation::Tn) => Adjacent::Lanes,
        };
        let [a, b] = self.factors.operands;
        let operand = match side {
            Side::A => a,
            Side::B => b,
        };
        let panels = Panels::<Bf16>::of(self.engine, side, adjacent);
        let block = (steps.start, steps.len);
        match operand {
            Entering::Pairs(PairsOperand::Bf16(matrix)) => {
                panels.pack(panels.block(matrix, (lanes.start, lanes.len), block), room);
            }
            Entering::Parts(matrix) => {
                let panels = Panels::<f32>::of(self.engine, side, adjacent);
                panels.pack(panels.block(matrix, (lanes.start, lanes.len), block), room);
            }
            Entering::Pairs(PairsOperand::Rounded(matrix)) => {
                let (needed, panel_bytes) = (panels.room(lanes.len, steps.len), panels.bytes(steps.len));
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

    /// Where the sums of these steps begin, and how they enter C if they do.
    fn begin_and_end(&self, steps: Range) -> (Begin, Option<End<'_, E>>) {
        let (is_first, is_last) = (steps.start == 0, steps.start + steps.len == self.sizes.2);
        match self.factors.terms {
            Terms::One => {
                let begin = if is_first { Begin::Zero } else { Begin::Stored };
                (begin, is_last.then_some(End { write: self.write, bias: self.bias }))
            }
            Terms::Six => {
                let write = if is_first { self.write } else { Write::Accumulate };
                (Begin::Zero, Some(End { write, bias: self.bias.filter(|_| is_last) }))
            }
        }
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
        let panel_step = self.factors.terms.parts() * padded_steps;
        let (begin, end) = self.begin_and_end(steps);
        let is_kept = begin == Begin::Stored || end.is_none();
        let multiply = match self.factors.terms {
            Terms::One => self.engine.tile,
            Terms::Six => self.engine.parts.tile,
        };
        let sums_of_tile = panel_rows * panel_columns;
        let tiles_across = columns.len.div_ceil(panel_columns);
        for (b_panel, column) in (0..columns.len).step_by(panel_columns).enumerate() {
            let tile_columns = panel_columns.min(columns.len - column);
            for (a_panel, row) in (0..rows.len).step_by(panel_rows).enumerate() {
                let tile_rows = panel_rows.min(rows.len - row);
                let row_of_tiles = (rows.start - kept.start + row) / panel_rows;
                let place = if is_kept { (row_of_tiles * tiles_across + b_panel) * sums_of_tile } else { 0 };
                let sums = &mut rooms.sums[place..place + sums_of_tile];
                let a = &rooms.a[a_panel * a_step_bytes * panel_step..][..a_step_bytes * panel_step];
                let b = &rooms.b[b_panel * b_step_bytes * panel_step..][..b_step_bytes * panel_step];
                let blocks = padded_steps / PAIRS_BLOCK;
                let mut c = c.block(rows.start + row, tile_rows, columns.start + column, tile_columns);
                let tile = PairsTile {
                    a: a.as_ptr(),
                    b: b.as_ptr(),
                    blocks,
                    begin,
                    sums: sums.as_mut_ptr(),
                    sums_stride: panel_columns,
                    rows_of_c: if end.is_some() { RowsOfC::of(&mut c) } else { RowsOfC::NEAR },
                };
                // SAFETY: the slices hold the panels and the tile, `Engine::of` checked that the machine has the instructions, and
                // `run` has entered the engine on this thread.
                unsafe { multiply(&tile) };
                self.meter.add_multiply_adds((tile_rows * tile_columns * steps.len) as u64);
                if let Some(End { write, bias }) = &end {
                    let bias = bias.map(|bias| &bias[columns.start + column..][..tile_columns]);
                    let sums = MatRef::new(sums, tile_rows, tile_columns, panel_columns);
                    run(self.instruction_set, Finish { sums, c, write: *write, bias });
                }
            }
        }
    }
}
