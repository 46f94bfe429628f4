//! Sends and receives where neighbouring units are on different pipeline ranks.

use std::collections::BTreeSet;

use config::{Microbatch, Stage, Unit};

use crate::schedule::{Cell, CellKind};
use crate::{Instr, RankView, StageSplit};

/// Receives are directly before the instruction that needs the value, sends directly after the one that makes it; only
/// a full backward is one piece, as in the schedules of the literature, and sends when it ends.
pub(super) fn insert(instrs: Vec<Instr>, view: &RankView, cells: &[Cell], stages: &StageSplit) -> Vec<Instr> {
    let full = cells.iter().filter(|cell| cell.kind == CellKind::B).map(|cell| (cell.stage, cell.microbatch));
    let transfers = Transfers { view, stages, full: full.collect() };
    let mut out = Vec::with_capacity(instrs.len());
    for instr in instrs {
        let around = if let Instr::Forward { unit, microbatch } = instr {
            transfers.around_forward(unit, microbatch)
        } else if let Instr::BackwardInput { unit, microbatch } = instr {
            transfers.around_backward_input(unit, microbatch)
        } else if let Instr::BackwardWeight { unit, microbatch } = instr {
            (None, transfers.after_backward_weight(unit, microbatch))
        } else {
            (None, None)
        };
        out.extend(around.0);
        out.push(instr);
        out.extend(around.1);
    }
    out
}

struct Transfers<'a> {
    view: &'a RankView,
    stages: &'a StageSplit,
    /// Stages and microbatches whose backward pass is in one piece.
    full: BTreeSet<(Stage, Microbatch)>,
}

impl Transfers<'_> {
    fn elsewhere(&self, unit: Option<Unit>) -> Option<Unit> {
        unit.filter(|unit| !self.view.computes(*unit))
    }

    fn around_forward(&self, unit: Unit, microbatch: Microbatch) -> (Option<Instr>, Option<Instr>) {
        let from = self.elsewhere(self.view.previous(unit));
        let to = self.elsewhere(self.view.next(unit));
        (from.map(|unit| Instr::RecvAct { unit, microbatch }), to.map(|_| Instr::SendAct { unit, microbatch }))
    }

    fn around_backward_input(&self, unit: Unit, microbatch: Microbatch) -> (Option<Instr>, Option<Instr>) {
        let from = self.elsewhere(self.view.next(unit));
        let send = self.send_gradient(unit, microbatch).filter(|_| !self.is_full(unit, microbatch));
        (from.map(|_| Instr::RecvGrad { unit, microbatch }), send)
    }

    fn after_backward_weight(&self, unit: Unit, microbatch: Microbatch) -> Option<Instr> {
        self.send_gradient(unit, microbatch).filter(|_| self.is_full(unit, microbatch))
    }

    fn is_full(&self, unit: Unit, microbatch: Microbatch) -> bool {
        self.full.contains(&(self.stages.stage_of(unit), microbatch))
    }

    /// Of the input of `unit`.
    fn send_gradient(&self, unit: Unit, microbatch: Microbatch) -> Option<Instr> {
        self.elsewhere(self.view.previous(unit)).map(|unit| Instr::SendGrad { unit, microbatch })
    }
}
