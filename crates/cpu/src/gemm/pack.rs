//! Copies blocks of A and B into panels: short vectors of one step of K, one after the other, so that a tile reads them
//! in order, always of `f32`: narrow operands are widened here. A panel of `panel` lanes holds up to `panel` rows of A (or columns of B); lanes without one are zero.

use super::vector::{Vector, Widened};

/// Steps that are copied for all panels before the next ones: few enough that the source is read along its rows, where
/// pages and prefetches are, and enough that each panel is written by several cache lines at a time.
const COPIED_STEPS: usize = 8;

/// A block to copy: `lanes` rows of A or columns of B, `steps` long.
pub(crate) struct Block {
    /// Element (0, 0), of the type that the kernel reads.
    pub source: *const u8,
    /// In elements: from one lane to the next where steps are adjacent, from one step to the next where lanes are.
    pub source_stride: usize,
    /// Rows of A or columns of B.
    pub lanes: usize,
    /// Length along K.
    pub steps: usize,
    /// Where the first panel starts.
    pub target: *mut f32,
    /// Lanes per panel in memory, a multiple of the register's.
    pub panel: usize,
    /// From one panel to the next.
    pub panel_stride: usize,
    /// How many of the block's lanes go into each panel, at most `panel`.
    pub panel_lanes: usize,
}

/// Copies a block. Unsafe because its pointers must be valid for its shape, and the machine must have the
/// instructions.
pub(crate) type PackKernel = unsafe fn(&Block);

/// Copies a block whose steps are adjacent (a row of A in NT and NN, a row of B in NT), transposing in registers.
///
/// # Safety
/// The machine has the instructions of `V`; the source holds `E`, may be read and the panels written for the block's shape.
#[inline(always)]
pub(crate) unsafe fn transposed<V: Vector, E: Widened, const LANES: usize>(block: &Block) {
    assert!(LANES == V::LANES, "a square of registers");
    for first in (0..block.lanes).step_by(block.panel_lanes) {
        let lanes = block.panel_lanes.min(block.lanes - first);
        for group in (0..lanes).step_by(LANES) {
            let rows = LANES.min(lanes - group);
            for step in (0..block.steps).step_by(LANES) {
                let steps = LANES.min(block.steps - step);
                // SAFETY: rows `first + group ..` and steps `step ..` of the block exist up to `rows` and `steps`, and
                // only these are read; the panel has room for `panel` lanes in each of the steps written.
                unsafe {
                    let source = block.source.cast::<E>().add((first + group) * block.source_stride + step);
                    let offset = first / block.panel_lanes * block.panel_stride;
                    let target = block.target.add(offset + step * block.panel + group);
                    let mut square = [V::zero(); LANES];
                    for (row, vector) in square.iter_mut().enumerate().take(rows) {
                        let row = source.add(row * block.source_stride);
                        // The rows of the next square: each is a short run that the machine does not foresee.
                        V::prefetch(row.wrapping_add(rows * block.source_stride).cast());
                        *vector = if steps == LANES { E::load(row) } else { E::load_first(row, steps) };
                    }
                    V::transpose(&mut square);
                    for (step, vector) in square.iter().enumerate().take(steps) {
                        vector.store(target.add(step * block.panel));
                    }
                }
            }
        }
    }
}

/// Copies a block whose lanes are adjacent (a row of A in TN, a row of B in NN and TN).
///
/// # Safety
/// As for [`transposed`].
#[inline(always)]
pub(crate) unsafe fn copied<V: Vector, E: Widened>(block: &Block) {
    for first_step in (0..block.steps).step_by(COPIED_STEPS) {
        let steps = first_step..block.steps.min(first_step + COPIED_STEPS);
        for first in (0..block.lanes).step_by(block.panel_lanes) {
            let lanes = block.panel_lanes.min(block.lanes - first);
            let panel = first / block.panel_lanes * block.panel_stride;
            for step in steps.clone() {
                let next = block.source.cast::<E>().wrapping_add((step + COPIED_STEPS) * block.source_stride + first);
                // SAFETY: any address may be asked for.
                unsafe { V::prefetch(next.cast()) };
                for group in (0..lanes).step_by(V::LANES) {
                    let count = V::LANES.min(lanes - group);
                    // SAFETY: lanes `first + group ..` of the step exist up to `count`, and only these are read; the
                    // panel has room for whole registers.
                    unsafe {
                        let source = block.source.cast::<E>().add(step * block.source_stride + first + group);
                        let target = block.target.add(panel + step * block.panel + group);
                        let vector: V = if count == V::LANES { E::load(source) } else { E::load_first(source, count) };
                        vector.store(target);
                    }
                }
            }
        }
    }
}
