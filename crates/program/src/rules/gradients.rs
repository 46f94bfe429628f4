//! `gradients`: each gradient is summed once over the axes that it needs, after its last write and before its first read.

use mesh::AxisSet;
use spec::{Unit, ZeroStage};

use super::{contributions, on_rank};
use crate::{Instr, Program, Purpose, Rule, Value, Violation};

pub(super) fn gradients(program: &Program) -> Vec<Violation> {
    let check = Check { program, violations: vec![] };
    match program.place.purpose {
        Purpose::Train => check.run(),
        Purpose::Evaluate => check.loss_is_summed(),
        Purpose::Generate => check.nothing_is_updated(),
    }
}

struct Check<'a> {
    program: &'a Program,
    violations: Vec<Violation>,
}

impl Check<'_> {
    fn violation(&mut self, message: &str) {
        self.violations.push(on_rank(self.program, Rule::Gradients, message));
    }

    /// Index of the one instruction like this; several or none is a violation.
    fn once(&mut self, instr: Instr) -> Option<usize> {
        let mut found = self.program.instrs.iter().enumerate().filter(|(_, other)| **other == instr);
        let first = found.next().map(|(index, _)| index);
        let more = found.count();
        match (first, more) {
            (Some(index), 0) => Some(index),
            (Some(_), more) => {
                self.violation(&format!("`{instr}` is there {} times, it should be once", more + 1));
                first
            }
            (None, _) => {
                self.violation(&format!("`{instr}` is missing"));
                None
            }
        }
    }

    fn ordered(&mut self, first: (Option<usize>, &str), second: (Option<usize>, &str)) {
        if let (Some(earlier), Some(later)) = (first.0, second.0)
            && earlier >= later
        {
            let message = format!(
                "{} (instruction {later}) comes before {} (instruction {earlier}); it needs what that makes",
                second.1, first.1
            );
            self.violation(&message);
        }
    }

    fn run(mut self) -> Vec<Violation> {
        let place = &self.program.place;
        let norm = self.once(Instr::GradNorm);
        let tied = if place.sums_tied() { self.once(Instr::SumTied) } else { None };
        self.ordered((tied, "the sum of the tied table's gradients"), (norm, "the norm"));
        for (value, list) in contributions(self.program) {
            let Value::Accumulator { unit, by } = value else { continue };
            self.axes(unit);
            let instr = Instr::ReduceGrads { unit, by };
            let reduction = self.once(instr);
            let name = instr.to_string();
            let last_write = list.last().map(|(index, _)| *index);
            self.ordered((last_write, "the last contribution"), (reduction, &name));
            let reader = if unit == Unit::Table && tied.is_some() { tied } else { norm };
            self.ordered((reduction, &name), (reader, "what reads its sum"));
        }
        for unit in place.parameter_units() {
            let step = self.once(Instr::OptimizerStep { unit });
            self.ordered((norm, "the norm"), (step, &Instr::OptimizerStep { unit }.to_string()));
            if place.zero == ZeroStage::One {
                let gather = self.once(Instr::GatherParams { unit });
                self.ordered((step, "the update"), (gather, &Instr::GatherParams { unit }.to_string()));
            }
        }
        self.nothing_else();
        self.violations
    }

    /// Data varies over the data axes, so every gradient is summed over at least these.
    fn axes(&mut self, unit: Unit) {
        let axes = self.program.place.gradient_axes.of(unit.kind()).unwrap_or(AxisSet::NONE);
        if axes.intersection(AxisSet::DATA) != AxisSet::DATA {
            self.violation(&format!("gradients of {unit} are summed over {axes}, they vary over {}", AxisSet::DATA));
        }
    }

    /// Reductions, updates and gathers of what this rank does not have.
    fn nothing_else(&mut self) {
        let place = &self.program.place;
        for (index, instr) in self.program.instrs.iter().enumerate() {
            let known = match *instr {
                Instr::ReduceGrads { unit, by } => place.accumulators().any(|pair| pair == (unit, by)),
                Instr::SumTied => place.sums_tied(),
                Instr::OptimizerStep { unit } => place.holds(unit),
                Instr::GatherParams { unit } => place.holds(unit) && place.zero == ZeroStage::One,
                Instr::Load { .. }
                | Instr::Forward { .. }
                | Instr::Recompute { .. }
                | Instr::BackwardInput { .. }
                | Instr::BackwardWeight { .. }
                | Instr::SendAct { .. }
                | Instr::RecvAct { .. }
                | Instr::SendGrad { .. }
                | Instr::RecvGrad { .. }
                | Instr::FreeParams { .. }
                | Instr::GradNorm
                | Instr::Save { .. } => true,
            };
            if !known {
                self.violation(&format!("instruction {index}, `{instr}`, is about nothing that this rank has"));
            }
        }
    }

    /// An evaluation ends with the sum of its losses over all ranks.
    fn loss_is_summed(mut self) -> Vec<Violation> {
        let norm = self.once(Instr::GradNorm);
        let is_forward = |instr: &Instr| matches!(instr, Instr::Forward { .. });
        let last_forward = self.program.instrs.iter().rposition(is_forward);
        self.ordered((last_forward, "the last forward"), (norm, "the sum of the losses"));
        self.nothing_is_updated()
    }

    fn nothing_is_updated(mut self) -> Vec<Violation> {
        for (index, instr) in self.program.instrs.iter().enumerate() {
            if matches!(instr, Instr::ReduceGrads { .. } | Instr::SumTied | Instr::OptimizerStep { .. }) {
                self.violation(&format!("instruction {index}, `{instr}`, stands in a program that does not train"));
            }
        }
        self.violations
    }
}
