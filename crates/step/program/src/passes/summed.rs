//! The axes that reductions carry, from the declarations of the parameters.

use config::PerClass;

use super::CompileInput;
use crate::GradientAxes;

/// The axes of each parameter of a unit.
pub(super) fn summed(input: &CompileInput) -> PerClass<GradientAxes> {
    let classes = input.model.classes();
    PerClass::new(&classes, |class| {
        let params = config::params(input.model, classes.first(class));
        GradientAxes::declared(&params, input.parallelism)
    })
}
