//! The axes that reductions carry, from the declarations of the parameters.

use config::Unit;
use config::unit::UnitKind;

use super::CompileInput;
use crate::GradientAxes;

/// Per kind of unit.
pub(super) struct Summed {
    table: GradientAxes,
    embedding: GradientAxes,
    layer: GradientAxes,
    head: GradientAxes,
}

impl Summed {
    pub(super) fn new(input: &CompileInput) -> Summed {
        let of = |unit| {
            let params = config::params(input.model, unit);
            GradientAxes::new(params.iter().map(|param| config::gradient_axes(param, input.parallelism)))
        };
        Summed {
            table: of(Unit::Table),
            embedding: of(Unit::Embedding),
            layer: of(Unit::Layer(0)),
            head: of(Unit::Head),
        }
    }

    pub(super) fn of(&self, unit: Unit) -> GradientAxes {
        match unit.kind() {
            UnitKind::Table => self.table,
            UnitKind::Embedding => self.embedding,
            UnitKind::Layer => self.layer,
            UnitKind::Head => self.head,
        }
    }
}
