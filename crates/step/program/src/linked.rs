//! Linking the programs of a step.

use crate::{Program, StepGraph, Violation, rules};

/// Links the programs of a step, in order of their pipeline index.
///
/// # Errors
/// All violations of `pairs` and `collectives`, or, where there are none, of `progress`; and those of the rules
/// that need no graph.
pub fn link(programs: Vec<Program>) -> Result<StepGraph, Vec<Violation>> {
    StepGraph::of(programs).map_err(|(programs, mut violations)| {
        violations.extend(rules::of_programs(&programs));
        violations
    })
}
