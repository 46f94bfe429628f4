//! Which units of a model have parameters.

use config::{ModelSpec, PerClass, Tied, Unit, params};

/// The units that have parameters, and those that each unit reads.
#[derive(Clone, Debug)]
pub(super) struct ParameterUnits {
    tied: Tied,
    /// Whether a unit has any.
    has: PerClass<bool>,
}

impl ParameterUnits {
    pub(super) fn new(model: &ModelSpec) -> ParameterUnits {
        let classes = model.classes();
        let has = PerClass::new(&classes, |class| !params(model, classes.first(class)).is_empty());
        ParameterUnits { tied: model.tied(), has }
    }

    /// The units whose parameters a unit reads, as far as they have any.
    pub(super) fn read_by(&self, unit: Unit) -> impl Iterator<Item = Unit> {
        unit.reads_parameters_of(self.tied).filter(|unit| *self.has.of(*unit))
    }
}
