//! `layers`: every unit has exactly one owner, and all ranks agree who.

use config::Unit;

use crate::{Program, Rule, Violation};

pub(super) fn layers(programs: &[Program]) -> Vec<Violation> {
    let Some(first) = programs.first() else {
        return vec![Violation::new(Rule::Layers, "there are no programs; a step needs at least one rank".into())];
    };
    let mut violations = vec![];
    for (index, program) in programs.iter().enumerate() {
        let view = &program.view;
        if (view.pp, view.pipeline_size, view.num_layers()) != (index, programs.len(), first.view.num_layers()) {
            let message = format!(
                "program {index} of {} takes itself for pipeline rank {} of {} with {} layers, program 0 has {}",
                programs.len(),
                view.pp,
                view.pipeline_size,
                view.num_layers(),
                first.view.num_layers()
            );
            violations.push(Violation::new(Rule::Layers, message));
        }
    }
    for unit in Unit::computing(first.view.num_layers()) {
        let owners: Vec<usize> =
            (0..programs.len()).filter(|rank| programs[*rank].view.owner(unit) == Some(*rank)).collect();
        let message = match owners.as_slice() {
            [owner] => match programs.iter().find(|program| program.view.owner(unit) != Some(*owner)) {
                None => continue,
                Some(other) => {
                    format!("{unit} belongs to pipeline rank {owner}, but rank {} disagrees", other.view.pp)
                }
            },
            [] => format!("{unit} has no owner among {} pipeline ranks; exactly one may own it", programs.len()),
            owners => format!("{unit} is owned by pipeline ranks {owners:?}; exactly one may own it"),
        };
        violations.push(Violation::new(Rule::Layers, message));
    }
    violations
}
