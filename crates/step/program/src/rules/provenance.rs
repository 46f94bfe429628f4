//! `provenance`: each microbatch contributes exactly once to each gradient.

use super::{Contributions, name, on_rank};
use crate::{Program, Purpose, Rule, Violation};

pub(super) fn provenance(program: &Program, contributions: &Contributions) -> Vec<Violation> {
    match program.view.purpose {
        Purpose::Evaluate | Purpose::Generate => return vec![],
        Purpose::Train => {}
    }
    let num_microbatches = program.view.num_microbatches;
    let mut violations = vec![];
    for (gradient, list) in contributions {
        let value = name(*gradient);
        let mut counts = vec![0usize; num_microbatches];
        for (index, microbatch) in list {
            match counts.get_mut(microbatch.0 as usize) {
                Some(count) => *count += 1,
                None => {
                    let message = format!("instruction {index} adds {microbatch} of {num_microbatches} to the {value}");
                    violations.push(on_rank(program, Rule::Provenance, &message));
                }
            }
        }
        for (microbatch, count) in counts.into_iter().enumerate().filter(|(_, count)| *count != 1) {
            let message = format!("microbatch {microbatch} contributes {count} times to the {value}, it should once");
            violations.push(on_rank(program, Rule::Provenance, &message));
        }
    }
    violations
}
