//! `gradients`: each gradient is summed once over the axes that it needs, after its last write and before its first
//! read.

use config::{GradientReduction, Kept, Microbatch, StateKind, Unit};

use super::{Contributions, on_rank};
use crate::{Family, GradientAxes, Instr, Program, Purpose, Rule, Violation};

pub(super) fn gradients(program: &Program, contributions: &Contributions) -> Vec<Violation> {
    let check = Check { program, violations: vec![] };
    match program.view.purpose {
        Purpose::Train => check.run(contributions),
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
        let found = self.program.instrs.iter().enumerate().filter(|(_, other)| **other == instr);
        let found: Vec<usize> = found.map(|(index, _)| index).collect();
        self.one_of(&found, &instr.to_string())
    }

    fn one_of(&mut self, found: &[usize], instr: &str) -> Option<usize> {
        let (first, more) = (found.first().copied(), found.len().saturating_sub(1));
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

    fn run(mut self, contributions: &Contributions) -> Vec<Violation> {
        let view = &self.program.view;
        self.unit_axes();
        let norm = self.once(Instr::GradNorm);
        let tied = if view.sums_tied() { self.once(Instr::SumTied) } else { None };
        self.ordered((tied, "the sum of the tied table's gradients"), (norm, "the norm"));
        for (&(unit, by), list) in contributions {
            let name = Instr::ReduceGrads { unit, by, axes: GradientAxes::new([]) }.to_string();
            let reductions = self.reductions(unit, by);
            for (index, axes) in &reductions {
                self.axes((*index, &name), unit, axes);
            }
            let reductions: Vec<usize> = reductions.into_iter().map(|(index, _)| index).collect();
            let reduction = match view.zero.reduction() {
                GradientReduction::Step => self.one_of(&reductions, &name),
                GradientReduction::Microbatch => self.after_each(&name, &reductions, list),
            };
            let last_write = list.last().map(|(index, _)| *index);
            self.ordered((last_write, "the last contribution"), (reduction, &name));
            let reader = if unit.is_read_at_both_ends(view.tied) && tied.is_some() { tied } else { norm };
            self.ordered((reduction, &name), (reader, "what reads its sum"));
        }
        for unit in view.trained_units() {
            let step = self.once(Instr::OptimizerStep { unit });
            self.ordered((norm, "the norm"), (step, &Instr::OptimizerStep { unit }.to_string()));
            if self.gathers_updates() {
                let gather = self.once(Instr::GatherParams { unit });
                self.ordered((step, "the update"), (gather, &Instr::GatherParams { unit }.to_string()));
            }
        }
        self.nothing_else();
        self.violations
    }

    /// Whether whole parameters are updated in shards and have to be gathered again.
    fn gathers_updates(&self) -> bool {
        let zero = self.program.view.zero;
        zero.keeps(StateKind::Optimizer) == Kept::Shard && zero.keeps(StateKind::Parameters) == Kept::Whole
    }

    /// The reductions of the gradients of `unit` that `by` made.
    fn reductions(&self, unit: Unit, by: Unit) -> Vec<(usize, GradientAxes)> {
        let mut found = vec![];
        for (index, instr) in self.program.instrs.iter().enumerate() {
            if let Instr::ReduceGrads { unit: of, by: maker, axes } = *instr
                && (of, maker) == (unit, by)
            {
                found.push((index, axes));
            }
        }
        found
    }

    /// Index of the last of the reductions `found`, of which there must be one between each contribution and the next.
    fn after_each(&mut self, instr: &str, found: &[usize], contributions: &[(usize, Microbatch)]) -> Option<usize> {
        if found.len() != contributions.len() {
            let (times, wanted) = (found.len(), contributions.len());
            self.violation(&format!(
                "`{instr}` is there {times} times, it should be once for each of {wanted} microbatches"
            ));
        }
        let next = contributions.iter().skip(1).map(|(index, _)| *index).chain([usize::MAX]);
        for ((reduction, (contribution, microbatch)), next) in found.iter().zip(contributions).zip(next) {
            if !(contribution..&next).contains(&reduction) {
                self.violation(&format!(
                    "`{instr}` (instruction {reduction}) is not between the contribution of {microbatch} (instruction \
                     {contribution}) and the next"
                ));
            }
        }
        found.last().copied()
    }

    /// The axes by which a unit is reduced and sharded must be those that follow from its declarations.
    fn unit_axes(&mut self) {
        let view = &self.program.view;
        for unit in view.parameter_units() {
            let (needed, got) = (view.declared.axes(unit), *view.axes.of(unit));
            if needed != got {
                self.violation(&format!(
                    "{unit} must be reduced over {} and sharded over {}; got {} and {}",
                    needed.data, needed.shards, got.data, got.shards
                ));
            }
        }
    }

    /// Each parameter's gradient must be summed over exactly the axes that follow from the parameter's declaration.
    fn axes(&mut self, (index, name): (usize, &str), unit: Unit, axes: &GradientAxes) {
        let declared = &self.program.view.declared;
        let (parameters, got) = (declared.of(unit), axes.as_slice());
        let at = format!("`{name}` (instruction {index})");
        if parameters.len() != got.len() {
            let (needed, got) = (parameters.len(), got.len());
            self.violation(&format!("{at} must have axes for each of {needed} parameters of {unit}; got {got}"));
            return;
        }
        let required = parameters.iter().map(|parameter| (parameter, declared.required_axes(parameter)));
        let wrong = required.zip(got).filter(|((_, required), got)| required != *got);
        let wrong: Vec<String> = wrong
            .map(|((parameter, required), got)| {
                format!("{at} must sum the gradient of {} of {unit} over {required}; got {got}", parameter.name)
            })
            .collect();
        wrong.iter().for_each(|message| self.violation(message));
    }

    /// Reductions, updates and gathers of what this rank does not have.
    fn nothing_else(&mut self) {
        let view = &self.program.view;
        for (index, instr) in self.program.instrs.iter().enumerate() {
            let is_gathered = |unit| view.holds(unit) && view.zero.keeps(StateKind::Optimizer) == Kept::Shard;
            let known = match instr.family() {
                Family::Reduce { unit, by, .. } => view.accumulators().any(|pair| pair == (unit, by)),
                Family::SumTied => view.sums_tied(),
                Family::Update { unit } => view.holds(unit),
                Family::CopyState { unit } => view.offloaded(unit).next().is_some(),
                Family::CopyActs { unit, .. } => {
                    view.computes(unit) && view.offloaded_activations(unit).next().is_some()
                }
                Family::Gather { unit } => is_gathered(unit),
                Family::Bookkeeping { unit } => !matches!(instr, Instr::FreeParams { .. }) || is_gathered(unit),
                Family::Pass(_) | Family::Load { .. } | Family::Transfer { .. } | Family::GradNorm => true,
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
            if matches!(
                instr,
                Instr::ReduceGrads { .. }
                    | Instr::SumTied
                    | Instr::OptimizerStep { .. }
                    | Instr::OffloadState { .. }
                    | Instr::OffloadActs { .. }
            ) {
                self.violation(&format!("instruction {index}, `{instr}`, is in a program that does not train"));
            }
        }
        self.violations
    }
}
