//! Products of small blocks, packed once and multiplied as often as there is something to multiply them with. The
//! building block of kernels that make such blocks themselves.

use std::marker::PhantomData;

use device::Bf16;

use super::PAIRS_BLOCK;
use super::engine::{Engine, MOST_SUMS};
use super::panels::Panels;
pub(crate) use super::panels::Side;
pub(crate) use super::tile::{Adjacent, Begin};
use super::tile::{PairsTile, RowsOfC, padded};
use crate::instruction_set::InstructionSet;
use crate::view::{MatMut, MatRef};

/// The way to multiply small blocks on this thread, as long as it lives.
pub(crate) struct SmallProducts {
    engine: &'static Engine,
    /// The prepared tiles are those of this thread.
    of_one_thread: PhantomData<*const ()>,
}

/// A packed block: some runs of [`PAIRS_BLOCK`] steps of some lanes.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    panels: &'a [u8],
    /// The first lane that takes part, which begins a panel, and how many.
    first_lane: usize,
    lanes: usize,
    /// Blocks of steps in a panel.
    stored: usize,
    /// The first block of steps that takes part, and how many.
    first: usize,
    blocks: usize,
}

/// Room for a packed block, and what is in it.
pub(crate) struct PackingWorkspace<'a> {
    side: Side,
    memory: &'a mut [u8],
    lanes: usize,
    blocks: usize,
}

impl<'a> PackingWorkspace<'a> {
    /// Takes the room for blocks of up to this many lanes and steps from the front of `memory`.
    pub(crate) fn take(
        products: &SmallProducts,
        side: Side,
        (lanes, steps): (usize, usize),
        memory: &mut &'a mut [u8],
    ) -> Self {
        let bytes = Panels::<Bf16>::of(products.engine, side, Adjacent::Steps).workspace_bytes(lanes, steps);
        let Some(memory) = memory.split_off_mut(..bytes) else {
            panic!("{bytes} bytes of panels in {}", memory.len());
        };
        Self { side, memory, lanes: 0, blocks: 0 }
    }

    /// Packs a block in place of the one before.
    pub(crate) fn pack(&mut self, products: &SmallProducts, adjacent: Adjacent, block: MatRef<'_, Bf16>) {
        let (lanes, steps) = Panels::<Bf16>::of(products.engine, self.side, adjacent).pack(block, self.memory);
        (self.lanes, self.blocks) = (lanes, padded(steps) / PAIRS_BLOCK);
    }

    /// The packed panels.
    pub(crate) fn packed(&self) -> Packed<'_> {
        Packed {
            panels: self.memory,
            first_lane: 0,
            lanes: self.lanes,
            stored: self.blocks,
            first: 0,
            blocks: self.blocks,
        }
    }
}

impl Packed<'_> {
    /// `lanes` lanes from `first` on, which begins a panel on every instruction set: a multiple of 32 of B, zero of A.
    pub(crate) fn lanes(self, first: usize, lanes: usize) -> Self {
        assert!(first + lanes <= self.lanes, "{lanes} lanes from {first} on, of {}", self.lanes);
        Self { first_lane: self.first_lane + first, lanes, ..self }
    }

    /// `blocks` blocks of steps from `first` on.
    pub(crate) fn steps(self, first: usize, blocks: usize) -> Self {
        assert!(first + blocks <= self.blocks, "{blocks} blocks of steps from {first} on, of {}", self.blocks);
        Self { first: self.first + first, blocks, ..self }
    }

    /// How many blocks of steps take part.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The steps of a panel that take part.
    fn panel(&self, lane: usize, panel_lanes: usize, step_bytes: usize) -> &[u8] {
        let lane = self.first_lane + lane;
        assert!(lane.is_multiple_of(panel_lanes), "lane {lane} is within a panel of {panel_lanes}");
        let block = PAIRS_BLOCK * step_bytes;
        &self.panels[(lane / panel_lanes * self.stored + self.first) * block..][..self.blocks * block]
    }
}

impl SmallProducts {
    /// Prepares the thread. Panics on a machine without `instruction_set`.
    pub(crate) fn enter(instruction_set: InstructionSet) -> Self {
        let engine = Engine::of(instruction_set);
        // SAFETY: `Engine::of` checked that the machine has the instructions.
        unsafe { (engine.enter)() };
        Self { engine, of_one_thread: PhantomData }
    }

    /// `c = a b`, or `c + a b` with each block of steps added to `c` in turn, as if it were a product that continues.
    /// Numbers in `c` that are subnormal count as zeros.
    pub(crate) fn multiply(&self, a: Packed<'_>, b: Packed<'_>, begin: Begin, mut c: MatMut<'_>) {
        let sizes = (c.rows(), c.cols(), a.blocks);
        assert!((a.lanes, b.lanes, b.blocks) == sizes, "{} x {} into {sizes:?}", a.lanes, b.lanes);
        let (panel_rows, panel_columns) = (self.engine.panel_rows, self.engine.panel_columns);
        for column in (0..c.cols()).step_by(panel_columns) {
            let b = b.panel(column, panel_columns, self.engine.b_step_bytes);
            let columns = panel_columns.min(c.cols() - column);
            for row in (0..c.rows()).step_by(panel_rows) {
                let a = a.panel(row, panel_rows, self.engine.a_step_bytes);
                let rows = panel_rows.min(c.rows() - row);
                let c = c.block(row, rows, column, columns);
                if (rows, columns) == (panel_rows, panel_columns) {
                    self.tile(a, b, begin, c);
                } else {
                    self.tile_at_an_edge(a, b, begin, c);
                }
            }
        }
    }

    /// A tile that reaches after an edge of C, by way of room for all of it.
    fn tile_at_an_edge(&self, a: &[u8], b: &[u8], begin: Begin, mut c: MatMut<'_>) {
        let (panel_rows, panel_columns) = (self.engine.panel_rows, self.engine.panel_columns);
        let mut sums = [0.0; MOST_SUMS];
        match begin {
            Begin::Zero => {}
            Begin::Stored => {
                for (sums, row) in sums.chunks_mut(panel_columns).zip(0..c.rows()) {
                    sums[..c.cols()].copy_from_slice(c.row_mut(row));
                }
            }
        }
        self.tile(a, b, begin, MatMut::dense(&mut sums, panel_rows, panel_columns));
        for (sums, row) in sums.chunks(panel_columns).zip(0..c.rows()) {
            let row = c.row_mut(row);
            row.copy_from_slice(&sums[..row.len()]);
        }
    }

    /// A whole tile of panels of the same number of steps.
    fn tile(&self, a: &[u8], b: &[u8], begin: Begin, mut c: MatMut<'_>) {
        let Engine { panel_rows, panel_columns, a_step_bytes, b_step_bytes, .. } = *self.engine;
        let blocks = a.len() / (PAIRS_BLOCK * a_step_bytes);
        assert!(b.len() == blocks * PAIRS_BLOCK * b_step_bytes, "panels of different lengths");
        assert!((c.rows(), c.cols()) == (panel_rows, panel_columns), "no whole tile");
        let (sums, sums_stride) = (c.as_mut_ptr(), c.row_stride());
        let [a, b] = [a, b].map(<[u8]>::as_ptr);
        let tile = PairsTile { a, b, ahead: a, blocks, begin, sums, sums_stride, rows_of_c: RowsOfC::NEAR };
        // SAFETY: the slices hold the panels and C the tile, as just asserted; `Engine::of` checked that the machine
        // has the instructions, and this thread, which the value does not leave, has entered the engine.
        unsafe { (self.engine.tile)(&tile) };
    }
}

impl Drop for SmallProducts {
    fn drop(&mut self) {
        // SAFETY: as when the engine was entered.
        unsafe { (self.engine.leave)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{PackingBuffers, PairsOperand, PairsProduct, Write, gemm_pairs};
    use crate::meter::Meter;
    use device::Orientation;

    const GAP: usize = 3;

    /// Numbers whose products are around the smallest normal one.
    fn numbers(len: usize, factor: usize) -> Vec<Bf16> {
        let drawn = (0..len).map(|i| i * factor % 0x8fff);
        drawn.map(|bits| Bf16(bits as u16 & 0x807f | ((62 + (bits >> 7) % 5) << 7) as u16)).collect()
    }

    /// `c + a b` for `a[rows, steps]`, `b[steps, columns]`.
    fn product(set: InstructionSet, (rows, columns, steps): (usize, usize, usize), begin: Begin) -> Vec<f32> {
        let (a, b) = (numbers(rows * steps, 40_503), numbers(columns * steps, 30_011));
        let stored = |i: usize| if i.is_multiple_of(3) { 1e-39 } else { (i % 7) as f32 * -1e-38 };
        let mut c: Vec<f32> = (0..rows * (columns + GAP)).map(stored).collect();
        let products = SmallProducts::enter(set);
        let mut buffers = PackingBuffers::new();
        let mut memory = buffers.bytes();
        let mut a_workspace = PackingWorkspace::take(&products, Side::A, (rows, steps), &mut memory);
        let mut b_workspace = PackingWorkspace::take(&products, Side::B, (columns, steps), &mut memory);
        a_workspace.pack(&products, Adjacent::Steps, MatRef::dense(&a, rows, steps));
        b_workspace.pack(&products, Adjacent::Lanes, MatRef::dense(&b, steps, columns));
        let view = MatMut::new(&mut c, rows, columns, columns + GAP);
        products.multiply(a_workspace.packed(), b_workspace.packed(), begin, view);
        c.chunks(columns + GAP).flat_map(|row| row[..columns].to_vec()).collect()
    }

    #[test]
    fn products_that_begin_at_zero_are_those_of_matrices() {
        for (rows, columns, steps) in [(64, 32, 64), (70, 45, 33), (5, 3, 2)] {
            for set in InstructionSet::available() {
                let (a, b) = (numbers(rows * steps, 40_503), numbers(columns * steps, 30_011));
                let [a, b] =
                    [MatRef::dense(&a, rows, steps), MatRef::dense(&b, steps, columns)].map(PairsOperand::Bf16);
                let mut c = vec![0.0; rows * columns];
                let view = MatMut::dense(&mut c, rows, columns);
                let matrices = PairsProduct { orientation: Orientation::Nn, a, b };
                let packing = &mut PackingBuffers::new();
                gemm_pairs(matrices, view, Write::Assign, None, packing, set, &Meter::new());
                assert!(c == product(set, (rows, columns, steps), Begin::Zero), "{set:?} {rows} {columns} {steps}");
                assert!(c.iter().any(|value| *value != 0.0), "not everything is too small");
            }
        }
    }

    /// Sums that are subnormal count as zeros on every set.
    #[test]
    fn products_that_go_on_have_the_same_bits_on_every_set() {
        for sizes in [(64, 32, 64), (70, 45, 33), (5, 3, 2)] {
            let expected = product(InstructionSet::Scalar, sizes, Begin::Stored);
            assert!(expected != product(InstructionSet::Scalar, sizes, Begin::Zero), "sums begin where they were");
            assert!(expected.iter().all(|sum| !sum.is_subnormal()), "{sizes:?}");
            for set in InstructionSet::available() {
                let bits = |sums: &[f32]| -> Vec<u32> { sums.iter().map(|sum| sum.to_bits()).collect() };
                assert!(bits(&product(set, sizes, Begin::Stored)) == bits(&expected), "{set:?} {sizes:?}");
            }
        }
    }
}
