//! `work`: each unit and microbatch has one forward, one backward of the input, one of the weights.

use config::{LayerRecompute, Microbatch, Unit};

use super::on_rank;
use crate::quick_hash::QuickMap;
use crate::{Instr, Pass, PassKind, Program, Purpose, RankView, Rule, Violation};

/// Work of a rank for a microbatch, without transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Work {
    Load(Microbatch),
    Pass(Pass),
}

pub(super) fn work(program: &Program) -> Vec<Violation> {
    let mut counts: QuickMap<Work, (usize, usize)> = QuickMap::default();
    for work in expected(&program.view) {
        counts.entry(work).or_default().0 += 1;
    }
    for work in program.instrs.iter().filter_map(|instr| work_of(*instr)) {
        counts.entry(work).or_default().1 += 1;
    }
    let mut wrong: Vec<_> = counts.into_iter().filter(|(_, (expected, found))| expected != found).collect();
    wrong.sort_unstable();
    wrong
        .into_iter()
        .map(|(work, (expected, found))| {
            let what = match work {
                Work::Load(microbatch) => format!("load {microbatch}"),
                Work::Pass(Pass { kind, unit, microbatch }) => format!("{kind:?} of {unit}, {microbatch}"),
            };
            on_rank(program, Rule::Work, &format!("{what} is there {found} times, it should be {expected} times"))
        })
        .collect()
}

fn work_of(instr: Instr) -> Option<Work> {
    if let Instr::Load { microbatch } = instr { Some(Work::Load(microbatch)) } else { instr.pass().map(Work::Pass) }
}

fn expected(view: &RankView) -> impl Iterator<Item = Work> + '_ {
    let passes = view.computing_units().flat_map(move |unit| {
        let of_kind = move |kind| move |microbatch| Work::Pass(Pass { kind, unit, microbatch });
        kinds(view, unit).iter().flat_map(move |kind| view.microbatches().map(of_kind(*kind)))
    });
    view.microbatches().map(Work::Load).chain(passes)
}

fn kinds(view: &RankView, unit: Unit) -> &'static [PassKind] {
    match (view.purpose, view.recomputes(unit)) {
        (Purpose::Evaluate | Purpose::Generate, _) => &[PassKind::Forward],
        (Purpose::Train, LayerRecompute::Core | LayerRecompute::Everything(_)) => {
            &[PassKind::Forward, PassKind::Recompute, PassKind::BackwardInput, PassKind::BackwardWeight]
        }
        (Purpose::Train, LayerRecompute::Nothing) => {
            &[PassKind::Forward, PassKind::BackwardInput, PassKind::BackwardWeight]
        }
    }
}
