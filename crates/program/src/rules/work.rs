//! `work`: each unit and microbatch has one forward, one backward of the input, one of the weights.

use std::collections::BTreeMap;

use spec::{LayerRecompute, Microbatch, Unit};

use super::on_rank;
use crate::{Instr, Place, Program, Purpose, Rule, Violation};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Load,
    Forward,
    Recompute,
    BackwardInput,
    BackwardWeight,
}

type Work = (Kind, Unit, Microbatch);

pub(super) fn work(program: &Program) -> Vec<Violation> {
    let mut counts: BTreeMap<Work, (usize, usize)> = BTreeMap::new();
    for work in expected(&program.place) {
        counts.entry(work).or_default().0 += 1;
    }
    for work in program.instrs.iter().filter_map(|instr| work_of(*instr)) {
        counts.entry(work).or_default().1 += 1;
    }
    let wrong = counts.into_iter().filter(|(_, (expected, found))| expected != found);
    wrong
        .map(|((kind, unit, microbatch), (expected, found))| {
            let what = match kind {
                Kind::Load => format!("load {microbatch}"),
                Kind::Forward | Kind::Recompute | Kind::BackwardInput | Kind::BackwardWeight => {
                    format!("{kind:?} of {unit}, {microbatch}")
                }
            };
            on_rank(program, Rule::Work, &format!("{what} is there {found} times, it should be {expected} times"))
        })
        .collect()
}

/// Loading is no unit's work; it stands under the embedding.
fn work_of(instr: Instr) -> Option<Work> {
    match instr {
        Instr::Load { microbatch } => Some((Kind::Load, Unit::Embedding, microbatch)),
        Instr::Forward { unit, microbatch } => Some((Kind::Forward, unit, microbatch)),
        Instr::Recompute { unit, microbatch } => Some((Kind::Recompute, unit, microbatch)),
        Instr::BackwardInput { unit, microbatch } => Some((Kind::BackwardInput, unit, microbatch)),
        Instr::BackwardWeight { unit, microbatch } => Some((Kind::BackwardWeight, unit, microbatch)),
        Instr::SendAct { .. }
        | Instr::RecvAct { .. }
        | Instr::SendGrad { .. }
        | Instr::RecvGrad { .. }
        | Instr::GatherParams { .. }
        | Instr::FreeParams { .. }
        | Instr::ReduceGrads { .. }
        | Instr::SumTied
        | Instr::GradNorm
        | Instr::OptimizerStep { .. }
        | Instr::Save { .. } => None,
    }
}

fn expected(place: &Place) -> impl Iterator<Item = Work> + '_ {
    let loads = place.microbatches().map(|microbatch| (Kind::Load, Unit::Embedding, microbatch));
    let of_units = place.computing_units().flat_map(move |unit| {
        place
            .microbatches()
            .flat_map(move |microbatch| kinds(place, unit).iter().map(move |kind| (*kind, unit, microbatch)))
    });
    loads.chain(of_units)
}

fn kinds(place: &Place, unit: Unit) -> &'static [Kind] {
    match (place.purpose, place.recomputes(unit)) {
        (Purpose::Evaluate | Purpose::Generate, _) => &[Kind::Forward],
        (Purpose::Train, LayerRecompute::Core | LayerRecompute::Everything(_)) => {
            &[Kind::Forward, Kind::Recompute, Kind::BackwardInput, Kind::BackwardWeight]
        }
        (Purpose::Train, LayerRecompute::Nothing) => &[Kind::Forward, Kind::BackwardInput, Kind::BackwardWeight],
    }
}
