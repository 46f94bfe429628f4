//! What ends a step: gradient reductions, norm, optimizer.

use std::collections::HashMap;

use spec::{Unit, ZeroStage};

use crate::{Instr, Place, Purpose};

/// Reduces each unit's gradients right after the last backward pass of the unit that makes them, while others still
/// compute; then sums those of a tied table, takes the norm, updates, and gathers parameters that were updated in shards.
pub(super) fn append(instrs: Vec<Instr>, place: &Place) -> Vec<Instr> {
    match place.purpose {
        Purpose::Generate => instrs,
        Purpose::Evaluate => instrs.into_iter().chain([Instr::GradNorm]).collect(),
        Purpose::Train => {
            let mut out = with_reductions(instrs, place);
            if place.sums_tied() {
                out.push(Instr::SumTied);
            }
            out.push(Instr::GradNorm);
            for unit in place.parameter_units() {
                out.push(Instr::OptimizerStep { unit });
                match place.zero {
                    ZeroStage::Off => {}
                    ZeroStage::One => out.push(Instr::GatherParams { unit }),
                }
            }
            out
        }
    }
}

fn with_reductions(instrs: Vec<Instr>, place: &Place) -> Vec<Instr> {
    let mut last: HashMap<Unit, usize> = HashMap::new();
    for (index, instr) in instrs.iter().enumerate() {
        if let Instr::BackwardWeight { unit, .. } = *instr {
            last.insert(unit, index);
        }
    }
    let mut out = Vec::with_capacity(instrs.len());
    for (index, instr) in instrs.into_iter().enumerate() {
        out.push(instr);
        if let Instr::BackwardWeight { unit: by, .. } = instr
            && last.get(&by) == Some(&index)
        {
            let kinds = by.reads_parameters_of(place.tied).iter().map(|kind| kind.of(by));
            let units = kinds.filter(|unit| place.has_parameters(*unit));
            out.extend(units.map(|unit| Instr::ReduceGrads { unit, by }));
        }
    }
    out
}
