//! How threads share a product in AMX order: one operand is packed once for all of them, the other by whoever
//! multiplies it.
//!
//! A round has two phases, between which all threads wait for each other. In the first they pack lanes of the common
//! operand, the smaller one, into memory that all of them read; in the second whoever is free takes the next strip of
//! the other operand, packs it for itself and multiplies it with all that is common. So nothing is packed twice, and a
//! thread that is slowed down takes fewer strips. A product has more than one round where the common operand, or the
//! sums that are kept between two runs of steps, do not fit into the memory for them. Which thread takes what has no
//! influence on the bits.

use super::blocks::TermProducts;
use super::engine::Engine;
use super::panels::Side;
use super::tile::padded;
use super::{PAIRS_BLOCK, TERMS_RUN};
use crate::gemm::cut::{Range, equal_blocks};

/// Strips for each thread, if the operand has as many: the last one to be done makes the others wait for half a strip
/// on average.
const PIECES_PER_THREAD: usize = 3;
/// Parts of the first phase for each thread.
const PARTS_PER_THREAD: usize = 2;

/// Bytes of a common operand up to which it stays in the L2 cache next to a strip.
const STAYS_IN_L2: usize = 5 << 18;
/// Bytes of a strip next to a common operand that stays in L2.
const STRIP_BESIDE_COMMON: usize = 300 << 10;
/// Bytes of a strip, which stays in L2, where the common operand is read from further away: the more of them, the less
/// often.
const STRIP_ALONE: usize = 768 << 10;

/// Sizes of the workspace in which threads multiply together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkspaceSizes {
    /// For panels of the common operand.
    pub panel_bytes: usize,
    /// For sums that are kept between two runs of steps.
    pub sums: usize,
    /// For a thread's own strip.
    pub strip_bytes: usize,
}

/// Some lanes of the common operand, times some lanes of the other, over some steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// The operand that is packed once.
    pub(super) common: Side,
    pub(super) common_lanes: Range,
    /// The lanes of the other operand.
    pub(super) other_lanes: Range,
    pub(super) steps: Range,
    /// Steps of a run: of a panel, and of what is summed before sums are put down.
    pub(super) run_steps: usize,
    /// Lanes that one part of the first phase packs.
    packed_at_once: usize,
    /// Lanes of a strip.
    strip_lanes: usize,
}

impl Round {
    /// Parts of the first phase: their lanes and steps.
    pub(super) fn packing(&self) -> impl Iterator<Item = (Range, Range)> {
        let Round { common_lanes, steps, run_steps, packed_at_once, .. } = *self;
        steps
            .blocks(run_steps)
            .flat_map(move |steps| common_lanes.blocks(packed_at_once).map(move |lanes| (lanes, steps)))
    }

    /// Lanes of the other operand that are multiplied at once.
    pub(super) fn strips(&self) -> impl Iterator<Item = Range> {
        self.other_lanes.blocks(self.strip_lanes)
    }

    /// How many parts the first phase has.
    pub(crate) fn number_of_packing_parts(&self) -> usize {
        self.packing().count()
    }

    /// How many parts the second phase has.
    pub(crate) fn number_of_strips(&self) -> usize {
        self.strips().count()
    }

    /// Rows and columns of C that a strip has.
    pub(crate) fn rows_and_columns(&self, strip: usize) -> Option<[std::ops::Range<usize>; 2]> {
        let other = self.strips().nth(strip)?;
        let [common, other] = [self.common_lanes, other].map(|range| range.start..range.start + range.len);
        Some(match self.common {
            Side::A => [common, other],
            Side::B => [other, common],
        })
    }
}

/// The inputs of the cut of a product.
pub(super) struct Cut<'a> {
    pub engine: &'a Engine,
    pub term_products: TermProducts,
    /// (M, N, K)
    pub sizes: (usize, usize, usize),
    pub workspace: WorkspaceSizes,
    pub threads: usize,
}

impl Cut<'_> {
    /// The rounds of the product, one after the other.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Round> + use<> {
        let (m, n, k) = self.sizes;
        let (common, common_lanes, other_lanes) = if m <= n { (Side::A, m, n) } else { (Side::B, n, m) };
        let other = common.other();
        let run_steps = match self.term_products {
            TermProducts::One => equal_blocks(k, self.engine.most_steps, PAIRS_BLOCK),
            TermProducts::Six => padded(k).clamp(PAIRS_BLOCK, TERMS_RUN),
        };
        let [common_panel, other_panel] = [common, other].map(|side| self.engine.panel_lanes(side));
        // Sums that continue from run to run are kept, those of terms enter C.
        let (most_common, most_other) = match self.term_products {
            TermProducts::One if k > run_steps => {
                let high = other_lanes.next_multiple_of(other_panel);
                let wide = self.workspace.sums.isqrt().max(self.workspace.sums / high) / common_panel * common_panel;
                let common = equal_blocks(common_lanes, wide.max(common_panel), common_panel);
                (common, (self.workspace.sums / common / other_panel * other_panel).max(other_panel))
            }
            TermProducts::One | TermProducts::Six => (common_lanes, other_lanes),
        };
        let fitting = |steps: usize| self.lanes_in(self.workspace.panel_bytes, common, steps);
        let common_block = equal_blocks(common_lanes, most_common.min(fitting(run_steps)), common_panel);
        let other_block = equal_blocks(other_lanes, most_other, other_panel);
        let most_runs = (fitting(run_steps) / common_block).max(1);
        let steps_block = equal_blocks(k, most_runs * run_steps, run_steps);
        let strip_lanes = self.strip_lanes(other, (common_block, other_block), run_steps);
        let share = common_lanes.min(common_block).div_ceil(self.threads * PARTS_PER_THREAD).max(1);
        let packed_at_once = equal_blocks(common_block, share, common_panel);
        Range::all(other_lanes).blocks(other_block).flat_map(move |other_lanes| {
            Range::all(common_lanes).blocks(common_block).flat_map(move |common_lanes| {
                Range::all(k).blocks(steps_block).map(move |steps| Round {
                    common,
                    common_lanes,
                    other_lanes,
                    steps,
                    run_steps,
                    packed_at_once,
                    strip_lanes,
                })
            })
        })
    }

    /// Lanes of an operand whose panels of this many steps fit into some bytes: whole panels, at least one.
    fn lanes_in(&self, bytes: usize, side: Side, steps: usize) -> usize {
        let panel_bytes = self.engine.step_bytes(side) * self.term_products.terms() * steps;
        (bytes / panel_bytes).max(1) * self.engine.panel_lanes(side)
    }

    fn strip_lanes(&self, other: Side, (common_block, other_block): (usize, usize), run_steps: usize) -> usize {
        let common = other.other();
        let panels = common_block.div_ceil(self.engine.panel_lanes(common));
        let common_bytes = panels * self.engine.step_bytes(common) * self.term_products.terms() * run_steps;
        let most_bytes = if common_bytes <= STAYS_IN_L2 { STRIP_BESIDE_COMMON } else { STRIP_ALONE };
        let fitting = self.lanes_in(most_bytes.min(self.workspace.strip_bytes), other, run_steps);
        let share =
            if self.threads == 1 { other_block } else { other_block.div_ceil(self.threads * PIECES_PER_THREAD) };
        equal_blocks(other_block, fitting.min(share).max(1), self.engine.panel_lanes(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction_set::InstructionSet;

    const WORKSPACE: WorkspaceSizes = WorkspaceSizes { panel_bytes: 2 << 20, sums: 1 << 16, strip_bytes: 1 << 20 };

    fn end(range: Range) -> usize {
        range.start + range.len
    }

    /// Holds the cut of one product to what its rounds promise.
    fn assert_covered(cut: &Cut<'_>) {
        let (m, n, k) = cut.sizes;
        let mut covered = 0;
        for round in cut.rounds() {
            let [common, other] = [round.common, round.common.other()];
            let panel_bytes = |side, steps| cut.engine.step_bytes(side) * cut.term_products.terms() * padded(steps);
            let panels = |side, lanes: usize| lanes.div_ceil(cut.engine.panel_lanes(side));
            // The first phase packs each number once, whole panels at a time, and all of it fits.
            let packed: usize = round.packing().map(|(lanes, steps)| lanes.len * steps.len).sum();
            assert_eq!(packed, round.common_lanes.len * round.steps.len);
            for (lanes, steps) in round.packing() {
                assert!((lanes.start - round.common_lanes.start).is_multiple_of(cut.engine.panel_lanes(common)));
                assert!(end(lanes) <= end(round.common_lanes) && end(steps) <= end(round.steps));
                assert!(steps.start.is_multiple_of(round.run_steps) && steps.len <= round.run_steps);
            }
            let runs = round.steps.blocks(round.run_steps).map(|steps| panel_bytes(common, steps.len)).sum::<usize>();
            assert!(panels(common, round.common_lanes.len) * runs <= cut.workspace.panel_bytes, "{round:?}");
            // The second takes each lane once, and a strip fits.
            for (index, strip) in round.strips().enumerate() {
                assert!((strip.start - round.other_lanes.start).is_multiple_of(cut.engine.panel_lanes(other)));
                assert!(panels(other, strip.len) * panel_bytes(other, round.run_steps) <= cut.workspace.strip_bytes);
                let Some([rows, columns]) = round.rows_and_columns(index) else { panic!("piece {index} of {round:?}") };
                assert!(rows.end <= m && columns.end <= n);
                covered += rows.len() * columns.len() * round.steps.len;
            }
            if matches!(cut.term_products, TermProducts::One) && k > round.run_steps {
                let tile = cut.engine.panel_rows * cut.engine.panel_columns;
                let tiles = panels(common, round.common_lanes.len) * panels(other, round.other_lanes.len);
                assert!(tiles * tile <= cut.workspace.sums, "{tiles} tiles of {tile} sums in {:?}", cut.workspace);
            }
        }
        assert_eq!(covered, m * n * k, "{:?}", cut.sizes);
    }

    #[test]
    fn rounds_cover_a_product_once_and_fit_into_their_workspace() {
        let lengths = [1, 5, 31, 33, 100, 512, 513, 1537, 4096];
        for instruction_set in InstructionSet::available() {
            let engine = Engine::of(instruction_set);
            for term_products in [TermProducts::One, TermProducts::Six] {
                for threads in [1, 2, 7] {
                    for m in lengths {
                        for n in lengths {
                            for k in [0, 1, 300, 513, 3100, 70_000] {
                                assert_covered(&Cut {
                                    engine,
                                    term_products,
                                    sizes: (m, n, k),
                                    workspace: WORKSPACE,
                                    threads,
                                });
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_smaller_operand_is_packed_once() {
        let engine = Engine::of(InstructionSet::Scalar);
        let sizes = (300, 40, 200);
        let rounds: Vec<_> = Cut { engine, term_products: TermProducts::Six, sizes, workspace: WORKSPACE, threads: 2 }
            .rounds()
            .collect();
        let [round] = rounds[..] else { panic!("{rounds:?}") };
        assert_eq!(round.common, Side::B);
        assert_eq!((round.number_of_packing_parts(), round.number_of_strips()), (3, 6));
    }
}
