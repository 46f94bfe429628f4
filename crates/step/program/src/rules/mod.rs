//! The rules that programs obey, one file each; what they mean is in [`crate::Rule`].

mod gradients;
mod layers;
mod memory;
mod order;
mod provenance;
mod waits;
mod work;

use std::collections::BTreeMap;

use config::{Microbatch, Unit};

pub(crate) use memory::memory;
pub(crate) use order::order;
pub use waits::waits;

use crate::lives::lives;
use crate::{Program, Rule, Value, Violation};

/// Violations of the rules that need no graph and that nothing waives.
pub(crate) fn of_programs(programs: &[Program]) -> Vec<Violation> {
    let mut violations = of_instructions(programs);
    violations.extend(programs.iter().flat_map(|program| lives(program).1));
    violations
}

/// The same without `values` and `parameters`, which [`crate::memory`] finds where it plans lives.
pub(crate) fn of_instructions(programs: &[Program]) -> Vec<Violation> {
    let mut violations = layers::layers(programs);
    for program in programs {
        violations.extend(work::work(program));
        let contributions = contributions(program);
        violations.extend(gradients::gradients(program, &contributions));
        violations.extend(provenance::provenance(program, &contributions));
    }
    violations
}

/// For a violation on one rank.
fn on_rank(program: &Program, rule: Rule, message: &str) -> Violation {
    Violation::new(rule, format!("pipeline rank {}: {message}", program.view.pp))
}

/// The gradient of the first unit's parameters that the second made.
type Gradient = (Unit, Unit);

fn name((unit, by): Gradient) -> String {
    Value::Accumulator { unit, by }.to_string()
}

/// Per gradient the contributions to it: instruction and microbatch.
type Contributions = BTreeMap<Gradient, Vec<(usize, Microbatch)>>;

/// The contributions to each gradient in program order. Gradients without any are there too.
fn contributions(program: &Program) -> Contributions {
    let mut found: Contributions = program.view.accumulators().map(|gradient| (gradient, vec![])).collect();
    for (index, instr) in program.instrs.iter().enumerate() {
        let Some(microbatch) = instr.microbatch() else { continue };
        for value in instr.effects(&program.view).accumulates.iter() {
            if let Value::Accumulator { unit, by } | Value::Unreduced { unit, by } = value {
                found.entry((unit, by)).or_default().push((index, microbatch));
            }
        }
    }
    found
}
