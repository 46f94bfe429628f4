//! Copies blocks of A and B into panels: short vectors of one step of K, one after the other, so that a tile reads them
//! in order, always of `f32`: narrow operands are widened here. A panel of `panel` lanes holds `panel_lanes` rows of A
//! (or columns of B). Registers are filled with what the block has: lanes after a panel's own hold the next panel's,
//! those after the block's are zero, and no tile reads either.

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
/// The machine has the instructions of `V`; the source holds `E`, may be read and the panels written for the block's
/// shape.
#[inline(always)]
pub(crate) unsafe fn transposed<V: Vector, E: Widened, const LANES: usize>(block: &Block) {
    assert!(LANES == V::LANES, "a square of registers");
    for (panel, first) in (0..block.lanes).step_by(block.panel_lanes).enumerate() {
        for group in (0..block.panel_lanes.min(block.lanes - first)).step_by(LANES) {
            let rows = LANES.min(block.lanes - first - group);
            for step in (0..block.steps).step_by(LANES) {
                let steps = LANES.min(block.steps - step);
                // SAFETY: rows `first + group ..` and steps `step ..` of the block exist up to `rows` and `steps`; the
                // panel has room for whole registers in each of these steps.
                unsafe {
                    let source = block.source.cast::<E>().add((first + group) * block.source_stride + step);
                    let target = block.target.add(panel * block.panel_stride + step * block.panel + group);
                    if (rows, steps) == (LANES, LANES) {
                        // With constants the square is straight code.
                        square::<V, E, LANES>(block, source, target, LANES, LANES);
                    } else {
                        square::<V, E, LANES>(block, source, target, rows, steps);
                    }
                }
            }
        }
    }
}

/// Transposes `rows` rows of `steps` elements, each at most `LANES`, into registers of a panel.
///
/// # Safety
/// As for [`transposed`], for these rows and steps.
#[inline(always)]
unsafe fn square<V: Vector, E: Widened, const LANES: usize>(
    block: &Block,
    source: *const E,
    target: *mut f32,
    rows: usize,
    steps: usize,
) {
    // SAFETY: the caller's promise; any address may be asked for.
    unsafe {
        let mut square = [V::zero(); LANES];
        for (row, vector) in square.iter_mut().enumerate().take(rows) {
            let row = source.add(row * block.source_stride);
            // The rows of the next square: each is a short run that the machine does not foresee.
            V::prefetch(row.wrapping_add(LANES * block.source_stride).cast());
            *vector = if steps == LANES { E::load(row) } else { E::load_first(row, steps) };
        }
        V::transpose(&mut square);
        for (step, vector) in square.iter().enumerate().take(steps) {
            vector.store(target.add(step * block.panel));
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
        let steps = COPIED_STEPS.min(block.steps - first_step);
        for (panel, first) in (0..block.lanes).step_by(block.panel_lanes).enumerate() {
            for group in (0..block.panel_lanes.min(block.lanes - first)).step_by(V::LANES) {
                let count = V::LANES.min(block.lanes - first - group);
                // SAFETY: lanes `first + group ..` of these steps exist up to `count`, and only these are read; the
                // panel has room for whole registers.
                unsafe {
                    let source = block.source.cast::<E>().add(first_step * block.source_stride + first + group);
                    let target = block.target.add(panel * block.panel_stride + first_step * block.panel + group);
                    if count == V::LANES {
                        registers::<V, E>(block, source, target, steps, |row| E::load(row));
                    } else {
                        registers::<V, E>(block, source, target, steps, |row| E::load_first(row, count));
                    }
                }
            }
        }
    }
}

/// Copies a register's lanes of `steps` steps.
///
/// # Safety
/// As for [`transposed`], for these lanes and steps.
#[inline(always)]
unsafe fn registers<V: Vector, E: Widened>(
    block: &Block,
    source: *const E,
    target: *mut f32,
    steps: usize,
    load: impl Fn(*const E) -> V,
) {
    for step in 0..steps {
        // SAFETY: the caller's promise; any address may be asked for.
        unsafe {
            let (row, register) = (source.add(step * block.source_stride), target.add(step * block.panel));
            // The next steps' row, and the next panel: both begin where the machine does not foresee it.
            V::prefetch(row.wrapping_add(COPIED_STEPS * block.source_stride).cast());
            V::prefetch(register.wrapping_add(block.panel_stride));
            load(row).store(register);
        }
    }
}
