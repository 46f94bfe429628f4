//! The end of a step: gradient reductions, norm, optimizer.

use std::collections::HashMap;

use config::{GradientReduction, MemoryKind, PerClass, Unit, ZeroStage};

use crate::sizes::STAGED_UNITS;
use crate::{GradientAxes, Instr, Purpose, RankView, Value};

/// Reduces each unit's gradients right after the last backward pass of the unit that makes them, while others still
/// compute, or after each contribution; then sums those of a tied table, takes the norm, updates, and gathers
/// parameters that were updated in shards. Optimizer state that is in memory of the host is copied to the arena before
/// its update, and back after it.
pub(super) fn append(instrs: Vec<Instr>, view: &RankView, summed: &PerClass<GradientAxes>) -> Vec<Instr> {
    match view.purpose {
        Purpose::Generate => instrs,
        Purpose::Evaluate => instrs.into_iter().chain([Instr::GradNorm]).collect(),
        Purpose::Train => {
            let mut out = behind_sends(match view.zero.reduction() {
                GradientReduction::Step => reduced_once(instrs, view, summed),
                GradientReduction::Microbatch => reduced_each_time(instrs, view, summed),
            });
            let units: Vec<Unit> = view.trained_units().collect();
            // Copies from the host run next to the last reductions and the norm.
            out.extend(units.iter().take(FETCHED_AHEAD).flat_map(|unit| fetch(view, *unit)));
            if view.sums_tied() {
                out.push(Instr::SumTied);
            }
            out.push(Instr::GradNorm);
            for (index, &unit) in units.iter().enumerate() {
                out.push(Instr::OptimizerStep { unit });
                match view.zero {
                    // Whole ones need no gather; sharded ones are gathered before their next use.
                    ZeroStage::Off | ZeroStage::Three { .. } => {}
                    ZeroStage::One | ZeroStage::Two { .. } => out.push(Instr::GatherParams { unit }),
                }
                out.extend(units.get(index + FETCHED_AHEAD).and_then(|ahead| fetch(view, *ahead)));
                match view.offload.optimizer_state() {
                    MemoryKind::Arena => {}
                    MemoryKind::Host => out.push(Instr::OffloadState { unit }),
                }
            }
            out
        }
    }
}

/// Units whose optimizer state is fetched before the one that is updated.
const FETCHED_AHEAD: usize = STAGED_UNITS - 1;

fn fetch(view: &RankView, unit: Unit) -> Option<Instr> {
    match view.offload.optimizer_state() {
        MemoryKind::Arena => None,
        MemoryKind::Host => Some(Instr::FetchState { unit }),
    }
}

fn reduced_once(instrs: Vec<Instr>, view: &RankView, summed: &PerClass<GradientAxes>) -> Vec<Instr> {
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
            let reduced = |unit| Instr::ReduceGrads { unit, by, axes: *summed.of(unit) };
            out.extend(view.makes_gradients_of(by).map(reduced));
        }
    }
    out
}

fn reduced_each_time(instrs: Vec<Instr>, view: &RankView, summed: &PerClass<GradientAxes>) -> Vec<Instr> {
    let mut out = Vec::with_capacity(2 * instrs.len());
    for instr in instrs {
        out.push(instr);
        for value in instr.effects(view).accumulates.iter() {
            if let Value::Unreduced { unit, by } = value {
                out.push(Instr::ReduceGrads { unit, by, axes: *summed.of(unit) });
            }
        }
    }
    out
}

/// Puts reductions after a send that directly follows: another rank waits for that, and a reduction waits for all of
/// its members.
fn behind_sends(instrs: Vec<Instr>) -> Vec<Instr> {
    let mut out = Vec::with_capacity(instrs.len());
    let mut reductions = vec![];
    for instr in instrs {
        if matches!(instr, Instr::ReduceGrads { .. }) {
            reductions.push(instr);
        } else {
            if !matches!(instr, Instr::SendGrad { .. }) {
                out.append(&mut reductions);
            }
            out.push(instr);
        }
    }
    out.append(&mut reductions);
    out
}
