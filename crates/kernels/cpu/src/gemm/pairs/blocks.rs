//! The loops around the tiles: what a thread does in the two phases of a round, the packing of operands, and the tiles
//! of a strip.

use device::Bf16;

use super::engine::Engine;
use super::finish::Finish;
use super::panels::{Packed, Panels, Side};
use super::rounds::{Cut, Round, WorkspaceSizes};
use super::tile::{Adjacent, Begin, PairsTile, RowsOfC, padded};
use super::workspace::{StripWorkspace, Workspace};
use super::{PAIRS_BLOCK, PairsOperand};
use crate::copy::Copy;
use crate::gemm::cut::Range;
use crate::gemm::{Orientation, Write};
use crate::instruction_set::InstructionSet;
use crate::lanes::{Stored, run};
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// How a matrix enters.
#[derive(Clone, Copy)]
pub(crate) enum Entering<'a> {
    Pairs(PairsOperand<'a>),
    Terms(MatRef<'a>),
}

/// The products of each pair of operands.
#[derive(Clone, Copy)]
pub(crate) enum TermProducts {
    /// The two as they entered; a sum continues over all of K.
    One,
    /// The products of their terms; a sum continues for [`TERMS_RUN`] steps.
    Six,
}

impl TermProducts {
    /// Numbers of bf16 in a panel for each that enters.
    pub(super) fn terms(self) -> usize {
        match self {
            TermProducts::One => <Bf16 as Packed>::TERMS,
            TermProducts::Six => <f32 as Packed>::TERMS,
        }
    }
}

/// The operands.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub orientation: Orientation,
    /// A and B, which enter as `term_products` has them.
    pub operands: [Entering<'a>; 2],
    pub term_products: TermProducts,
}

/// A product on its way through the loops.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(super) engine: &'static Engine,
    pub(super) factors: Factors<'a>,
    /// (M, N, K)
    pub(super) sizes: (usize, usize, usize),
    pub(super) instruction_set: InstructionSet,
}

/// A block of C, and how sums enter it.
pub(crate) struct Target<'a, E> {
    pub c: MatMut<'a, E>,
    pub write: Write,
    /// A value for each of the block's columns.
    pub bias: Option<&'a [E]>,
}

/// How the sums of some steps begin and end.
struct SumEnds {
    begin: Begin,
    /// How they enter C if they do, and whether with the bias.
    end: Option<(Write, Bias)>,
}

/// Whether sums enter C with the bias.
#[derive(Clone, Copy)]
enum Bias {
    Added,
    Left,
}

/// A strip of one operand and a run of the common one, packed.
struct Panelled<'a> {
    /// Its lanes, counted from the start of those of the round.
    strip: Range,
    steps: Range,
    /// Panels of the common operand and of the strip.
    panels: [&'a [u8]; 2],
}

impl Pass<'_> {
    /// How some threads compute the product in some room.
    pub(crate) fn rounds(&self, workspace: WorkspaceSizes, threads: usize) -> impl Iterator<Item = Round> + use<> {
        let (m, n, _) = self.sizes;
        let cut = Cut {
            engine: self.engine,
            term_products: self.factors.term_products,
            sizes: self.sizes,
            workspace,
            threads,
        };
        (m > 0 && n > 0).then(|| cut.rounds()).into_iter().flatten()
    }

    /// Does one part of the first phase of a round: packs some lanes of the common operand.
    ///
    /// # Safety
    /// Nobody else has this part, or is in the second phase.
    pub(crate) unsafe fn pack_common(
        &self,
        round: &Round,
        part: usize,
        workspace: Workspace<'_>,
        rounded: &mut [Bf16],
    ) {
        let Some((lanes, steps)) = round.packing().nth(part) else { return };
        let panel_bytes = self.panel_bytes(round.common, steps.len);
        let panel_lanes = self.engine.panel_lanes(round.common);
        let before = (lanes.start - round.common_lanes.start) / panel_lanes * panel_bytes;
        let start = self.panels_of_run(round, steps).start + before;
        let bytes = lanes.len.div_ceil(panel_lanes) * panel_bytes;
        // SAFETY: parts have panels of their own, and nobody reads them in this phase.
        let panels = unsafe { workspace.panels_mut(start, bytes) };
        self.pack(round.common, lanes, steps, panels, rounded);
    }

    /// Does one part of the second phase of a round: computes what a strip has of C.
    ///
    /// # Safety
    /// Nobody else has this part, or is in the first phase, and all parts of that one have been done.
    pub(crate) unsafe fn multiply_strip<E: Stored>(
        &self,
        round: &Round,
        strip: usize,
        mut target: Target<'_, E>,
        workspace: Workspace<'_>,
        own: &mut StripWorkspace<'_>,
        meter: &Meter,
    ) {
        let Some(lanes) = round.strips().nth(strip) else { return };
        let other = round.common.other();
        // SAFETY: `Engine::of` checked that the machine has the instructions.
        unsafe { (self.engine.enter)() };
        for steps in round.steps.blocks(round.run_steps) {
            self.pack(other, lanes, steps, own.strip, own.rounded);
            let panels = self.panels_of_run(round, steps);
            // SAFETY: in this phase nobody writes panels of the common operand.
            let common = unsafe { workspace.panels(panels.start, panels.len) };
            let strip = Range { start: lanes.start - round.other_lanes.start, len: lanes.len };
            let panelled = Panelled { strip, steps, panels: [common, own.strip] };
            // SAFETY: the strip's sums belong to who has the strip.
            unsafe { self.tiles(round, &panelled, &mut target, workspace, own.sums, meter) };
        }
        // SAFETY: as above.
        unsafe { (self.engine.leave)() };
    }

    /// Bytes of a panel, with all terms.
    fn panel_bytes(&self, side: Side, steps: usize) -> usize {
        self.engine.step_bytes(side) * self.factors.term_products.terms() * padded(steps)
    }

    /// A run's panels of the common operand, in bytes of their room: runs follow each other.
    fn panels_of_run(&self, round: &Round, steps: Range) -> Range {
        let panels = round.common_lanes.len.div_ceil(self.engine.panel_lanes(round.common));
        let bytes = |steps: usize| panels * self.panel_bytes(round.common, steps);
        let runs_before = (steps.start - round.steps.start) / round.run_steps;
        Range { start: runs_before * bytes(round.run_steps), len: bytes(steps.len) }
    }

    /// Packs these rows of A or columns of B; what is to be rounded goes through the room for it, as many panels at a
    /// time as it holds.
    fn pack(&self, side: Side, lanes: Range, steps: Range, workspace: &mut [u8], rounded: &mut [Bf16]) {
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
                panels.pack(panels.block(matrix, (lanes.start, lanes.len), block), workspace);
            }
            Entering::Terms(matrix) => {
                let panels = Panels::<f32>::of(self.engine, side, adjacent);
                panels.pack(panels.block(matrix, (lanes.start, lanes.len), block), workspace);
            }
            Entering::Pairs(PairsOperand::Rounded(matrix)) => {
                let (needed, panel_bytes) = (panels.workspace_bytes(lanes.len, steps.len), panels.bytes(steps.len));
                assert!(needed <= workspace.len(), "{needed} bytes of panels in {}", workspace.len());
                let at_once = rounded.len() / padded(steps.len).max(1) / panels.lanes;
                let workspaces = workspace.chunks_mut(at_once * panel_bytes.max(1));
                for (part, workspace) in lanes.blocks(at_once * panels.lanes).zip(workspaces) {
                    let from = panels.block(matrix, (part.start, part.len), block);
                    let (rows, cols) = (from.rows(), from.cols());
                    let rounded = &mut rounded[..rows * cols];
                    run(self.instruction_set, Copy { from, to: MatMut::dense(rounded, rows, cols) });
                    panels.pack(MatRef::dense(rounded, rows, cols), workspace);
                }
            }
        }
    }

    /// Where the sums of these steps begin, and how they enter C if they do.
    fn sums(&self, steps: Range, write: Write) -> SumEnds {
        let (is_first, is_last) = (steps.start == 0, steps.start + steps.len == self.sizes.2);
        let bias = if is_last { Bias::Added } else { Bias::Left };
        match self.factors.term_products {
            // They continue over all of K.
            TermProducts::One => SumEnds {
                begin: if is_first { Begin::Zero } else { Begin::Stored },
                end: is_last.then_some((write, bias)),
            },
            // They enter C after each run.
            TermProducts::Six => {
                SumEnds { begin: Begin::Zero, end: Some((if is_first { write } else { Write::Accumulate }, bias)) }
            }
        }
    }

    /// Runs all tiles of packed panels, and writes those to C whose steps are done.
    ///
    /// # Safety
    /// The sums that are kept of the strip belong to the caller.
    unsafe fn tiles<E: Stored>(
        &self,
        round: &Round,
        panelled: &Panelled<'_>,
        target: &mut Target<'_, E>,
        workspace: Workspace<'_>,
        own_sums: &mut [f32],
        meter: &Meter,
    ) {
        let Engine { panel_columns, .. } = *self.engine;
        let sums_of_tile = self.engine.panel_rows * panel_columns;
        let steps = panelled.steps;
        let SumEnds { begin, end } = self.sums(steps, target.write);
        let is_kept = begin == Begin::Stored || end.is_none();
        let (multiply, ahead_bytes) = match self.factors.term_products {
            TermProducts::One => (self.engine.tile, self.engine.ahead_bytes),
            TermProducts::Six => (self.engine.terms.tile, self.engine.terms.ahead_bytes),
        };
        let sides = [round.common, round.common.other()];
        let [common_lanes, other_lanes] = sides.map(|side| self.engine.panel_lanes(side));
        let [common_bytes, other_bytes] = sides.map(|side| self.panel_bytes(side, steps.len));
        let other_panels = round.other_lanes.len.div_ceil(other_lanes);
        let panels = panelled.panels;
        let blocks = padded(steps.len) / PAIRS_BLOCK;
        let ahead_bytes = blocks * ahead_bytes;
        for (common_panel, common_lane) in (0..round.common_lanes.len).step_by(common_lanes).enumerate() {
            let common = &panels[0][common_panel * common_bytes..][..common_bytes];
            for (panel, lane) in (0..panelled.strip.len).step_by(other_lanes).enumerate() {
                let other = &panels[1][panel * other_bytes..][..other_bytes];
                let ([a, b], [row, column]) = match round.common {
                    Side::A => ([common, other], [common_lane, lane]),
                    Side::B => ([other, common], [lane, common_lane]),
                };
                let rows = self.engine.panel_rows.min(target.c.rows() - row);
                let columns = panel_columns.min(target.c.cols() - column);
                let mut c = target.c.block(row, rows, column, columns);
                let place = common_panel * other_panels + panelled.strip.start / other_lanes + panel;
                // SAFETY: the caller's promise.
                let kept = is_kept.then(|| unsafe { workspace.sums_mut(place * sums_of_tile, sums_of_tile) });
                let sums = kept.unwrap_or(&mut own_sums[..sums_of_tile]);
                // The tiles of a panel of the common operand ask for the next one, which comes from further away, each
                // for a part.
                let ahead = (common_panel + 1) * common_bytes + (panel * ahead_bytes).min(common_bytes);
                let tile = PairsTile {
                    a: a.as_ptr(),
                    b: b.as_ptr(),
                    ahead: panels[0].get(ahead..).map_or(other.as_ptr(), <[u8]>::as_ptr),
                    blocks,
                    begin,
                    sums: sums.as_mut_ptr(),
                    sums_stride: panel_columns,
                    rows_of_c: if end.is_some() { RowsOfC::of(&mut c) } else { RowsOfC::NEAR },
                };
                // SAFETY: the slices hold the panels and the tile, `Engine::of` checked that the machine has the
                // instructions, and `multiply_strip` has entered the engine on this thread.
                unsafe { multiply(&tile) };
                meter.add_multiply_adds((rows * columns * steps.len) as u64);
                if let Some((write, bias)) = end {
                    let bias = match bias {
                        Bias::Added => target.bias.map(|bias| &bias[column..][..columns]),
                        Bias::Left => None,
                    };
                    let sums = MatRef::new(sums, rows, columns, panel_columns);
                    run(self.instruction_set, Finish { sums, c, write, bias });
                }
            }
        }
    }
}
