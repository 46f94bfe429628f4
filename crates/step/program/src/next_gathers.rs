//! Gathers of parameters that were updated in shards, while the forward passes of the next step run.

use config::ZeroStage;

use crate::clock::Durations;
use crate::quick_hash::ValueMap;
use crate::{Instr, Program, Value};

/// When parameters are gathered that ranks have updated in shards (ZeRO-1 and 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdatedGathers {
    /// After the update, in the step that updates them.
    AfterUpdate,
    /// In a line of their own from the start of the next step, in the order in which that needs them. Steps that
    /// follow each other are alike, so a step begins with the gathers of the one before.
    OverlappedWithNextStep,
}

/// One gather of the step before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextGather {
    /// The instruction.
    pub index: usize,
    /// The parameters, which are whole when it ends.
    pub parameters: Value,
    /// When it starts and ends.
    pub time: (u64, u64),
}

/// The gathers with which a step begins that has `program`, in the order of their parameters' first uses; nothing
/// where ranks gather parameters for each use, or never.
pub(crate) fn next_gathers(program: &Program, durations: &dyn Durations) -> Vec<NextGather> {
    match program.view.zero {
        ZeroStage::Off | ZeroStage::Three { .. } => return vec![],
        ZeroStage::One | ZeroStage::Two { .. } => {}
    }
    let mut first_uses: ValueMap<usize> = ValueMap::default();
    let mut gathers = vec![];
    for (index, instr) in program.instrs.iter().enumerate() {
        if let Instr::GatherParams { unit } = *instr {
            let parameters = program.view.parameters(unit);
            gathers.push((first_uses.get(&parameters).copied().unwrap_or(index), index, parameters));
        } else if instr.pass().is_some() {
            for value in instr.effects(&program.view).reads.iter() {
                first_uses.entry(value).or_insert(index);
            }
        }
    }
    gathers.sort_unstable_by_key(|(first_use, index, _)| (*first_use, *index));
    let mut now = 0;
    let placed = gathers.into_iter().map(|(_, index, parameters)| {
        let start = now;
        now += durations.of(&program.view, program.instrs[index]);
        NextGather { index, parameters, time: (start, now) }
    });
    placed.collect()
}
