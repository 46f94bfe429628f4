//! Cells become instructions on units.

use config::Unit;

use crate::schedule::{Cell, CellKind};
use crate::{Instr, Purpose, StageSplit};

/// Forward cells run the stage's units in order, backward cells in reverse. A full backward runs both parts unit by
/// unit, so that little is pending; the split one runs first all of one part, then, in another cell, all of the other.
pub(super) fn expand(cells: &[Cell], stages: &StageSplit, purpose: Purpose) -> Vec<Instr> {
    let mut instrs = vec![];
    for cell in cells {
        let microbatch = cell.microbatch;
        let units = stages.units(cell.stage);
        let input = |unit: Unit| Instr::BackwardInput { unit, microbatch };
        let weight = |unit: Unit| Instr::BackwardWeight { unit, microbatch };
        match (cell.kind, purpose) {
            (CellKind::F, _) => instrs.extend(units.map(|unit| Instr::Forward { unit, microbatch })),
            (_, Purpose::Evaluate | Purpose::Generate) => {}
            (CellKind::B, Purpose::Train) => instrs.extend(units.rev().flat_map(|unit| [input(unit), weight(unit)])),
            (CellKind::I, Purpose::Train) => instrs.extend(units.rev().map(input)),
            (CellKind::W, Purpose::Train) => instrs.extend(units.rev().map(weight)),
        }
    }
    instrs
}
