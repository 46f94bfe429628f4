//! Which units of a model have parameters.

use config::unit::{Tied, UnitKind};
use config::{ModelSpec, Unit, params};

/// The kinds of parameters of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParameterKinds {
    tied: Tied,
    /// By unit kind: whether the model has any.
    has: [bool; 4],
}

impl ParameterKinds {
    pub(super) fn new(model: &ModelSpec) -> ParameterKinds {
        let units = [Unit::Table, Unit::Embedding, Unit::Layer(0), Unit::Head];
        ParameterKinds { tied: model.tied(), has: units.map(|unit| !params(model, unit).is_empty()) }
    }

    /// The kinds of parameters that a unit reads.
    pub(super) fn read_by(self, unit: Unit) -> impl Iterator<Item = UnitKind> {
        let kinds = unit.reads_parameters_of(self.tied).iter().copied();
        kinds.filter(move |kind| self.has[*kind as usize])
    }
}
