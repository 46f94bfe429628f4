//! How often a rank gathers parameters that are sharded.

use std::collections::BTreeMap;

use config::{Gathering, Parallelism, Reshard, Stage, Unit, ZeroStage};
use program::CellKind;
use train::StepOrder;

use super::parameters::ParameterUnits;

/// How often a pipeline rank gathers the parameters of each unit in a step, at least: as the compiler's pass does,
/// which joins the spans of uses that meet or follow each other. Where parameters stay until the backward pass, each is
/// gathered once.
pub(super) fn gathers(
    order: &StepOrder,
    parameters: &ParameterUnits,
    parallelism: &Parallelism,
    rank: usize,
) -> BTreeMap<Unit, usize> {
    let ZeroStage::Three { gathering: Gathering { prefetch, reshard }, .. } = parallelism.zero else {
        return BTreeMap::new();
    };
    // This many uses further on, the next one still joins.
    let reach = match reshard {
        Reshard::AfterUse => prefetch + 1,
        Reshard::AfterBackward => usize::MAX,
    };
    let mut spans = Spans::default();
    let mut take = |by: Unit| spans.take(by, parameters.read_by(by), reach);
    for cell in &order.schedule.ranks[rank] {
        let units = order.stages.units(Stage(cell.stage.0));
        match cell.kind {
            CellKind::F => units.for_each(&mut take),
            // Backward passes of embedding and head read no parameters.
            CellKind::B | CellKind::I => units.rev().filter(|unit| unit.is_repeated()).for_each(&mut take),
            CellKind::W => {}
        }
    }
    spans.gathers
}

#[derive(Default)]
struct Spans {
    /// How many uses there were, and by which unit the last was.
    uses: usize,
    last: Option<Unit>,
    /// The last use of each unit's parameters.
    of_unit: BTreeMap<Unit, usize>,
    gathers: BTreeMap<Unit, usize>,
}

impl Spans {
    /// Counts a use of `units` by a unit.
    fn take(&mut self, by: Unit, units: impl Iterator<Item = Unit>, reach: usize) {
        if self.last.replace(by) != Some(by) {
            self.uses += 1;
        }
        for unit in units {
            let before = self.of_unit.insert(unit, self.uses);
            if before.is_none_or(|before| self.uses - before > reach) {
                *self.gathers.entry(unit).or_default() += 1;
            }
        }
    }
}
