//! When values live: births, last uses and deaths along one rank's program. The rules `values` and `parameters` are
//! their being in order.

use crate::accesses::accesses_of;
use crate::effects::Gradients;
use crate::quick_hash::{ValueMap, ValueSet};
use crate::{Effects, Program, Purpose, Reached, Rule, State, Value, Violation};

/// One life of a value on a rank. A value that is recomputed lives twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub value: Value,
    /// The instruction that writes it first.
    pub birth: usize,
    pub end: End,
    /// The last instruction of each stream that touches it.
    pub used: Reached,
}

/// The end of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This instruction frees it, or is its last reader.
    After(usize),
    /// The send with this index lent it: it lives until the receive is known to have happened.
    Lent(usize),
    /// The caller reads it after the program.
    Caller,
}

/// A life whose end the walk has not reached.
#[derive(Clone, Copy)]
struct OpenLife {
    birth: usize,
    last_use: usize,
    used: Reached,
}

impl OpenLife {
    fn born(birth: usize) -> OpenLife {
        OpenLife { birth, last_use: birth, used: Reached::NOTHING }
    }
}

/// How far a value's life is, in a walk along a program.
struct Walk<'a> {
    program: &'a Program,
    rank: usize,
    alive: ValueMap<OpenLife>,
    state: ValueSet,
    lives: Vec<Life>,
    violations: Vec<Violation>,
}

/// The lives of all values that live within the step, in order of their ends, and violations of `values` and
/// `parameters`.
pub(crate) fn lives(program: &Program) -> (Vec<Life>, Vec<Violation>) {
    let state = match program.view.purpose {
        Purpose::Train => State::Training,
        Purpose::Evaluate => State::Inference,
        // Which values there are does not depend on their sizes.
        Purpose::Generate => State::Generation { cache_bytes: 0 },
    };
    let mut walk = Walk {
        program,
        rank: program.view.pp,
        alive: ValueMap::default(),
        state: program.view.state(state).into_iter().collect(),
        lives: vec![],
        violations: vec![],
    };
    for (index, instr) in program.instrs.iter().enumerate() {
        walk.step(index, &instr.effects(&program.view));
    }
    walk.finish();
    (walk.lives, walk.violations)
}

impl Walk<'_> {
    /// A violation about a value: of `parameters` where it was gathered, of `values` otherwise.
    fn violation(&mut self, index: usize, value: Value, what: &str) {
        let rule = if matches!(value, Value::Gathered(_)) { Rule::Parameters } else { Rule::Values };
        let message = match self.program.instrs.get(index) {
            Some(instr) => format!("pipeline rank {}, instruction {index}, `{instr}`: {what}", self.rank),
            None => format!("pipeline rank {}, at the end: {what}", self.rank),
        };
        self.violations.push(Violation::new(rule, message));
    }

    fn step(&mut self, index: usize, effects: &Effects) {
        for value in effects.reads.iter() {
            self.read(index, value);
        }
        if effects.reads_gradients == Gradients::All {
            let view = &self.program.view;
            for (unit, by) in view.norm_accumulators() {
                self.read(index, view.sum(unit, by));
            }
        }
        for value in effects.accumulates.iter() {
            self.accumulate(index, value);
        }
        // A value that is read and assigned is updated in place.
        for value in effects.assigns.iter().filter(|value| !effects.reads.as_slice().contains(value)) {
            self.assign(index, value);
        }
        self.touch(index, effects);
        for value in effects.frees.iter() {
            self.end(value, End::After(index));
        }
        if let Some(value) = effects.lends {
            self.end(value, End::Lent(index));
        }
    }

    /// Notes which of the values that are alive the instruction touches.
    fn touch(&mut self, index: usize, effects: &Effects) {
        let stream = self.program.instrs[index].stream();
        accesses_of(effects, &self.program.view, |value, _| {
            if let Some(alive) = self.alive.get_mut(&value) {
                alive.used.add(stream, index);
            }
        });
    }

    fn read(&mut self, index: usize, value: Value) {
        if value.is_state() {
            if !self.state.contains(&value) {
                self.violation(index, value, &format!("needs the {value}, which this rank does not hold"));
            }
        } else if let Some(alive) = self.alive.get_mut(&value) {
            alive.last_use = index;
        } else {
            let history =
                if self.lives.iter().any(|life| life.value == value) { "is gone" } else { "was never written" };
            self.violation(index, value, &format!("needs the {value}, which {history}"));
        }
    }

    /// A sum that does not live yet begins here.
    fn accumulate(&mut self, index: usize, value: Value) {
        if value.is_state() || self.alive.contains_key(&value) {
            self.read(index, value);
        } else {
            self.alive.insert(value, OpenLife::born(index));
        }
    }

    fn assign(&mut self, index: usize, value: Value) {
        if value.is_state() {
            self.read(index, value);
        } else if self.alive.insert(value, OpenLife::born(index)).is_some() {
            self.violation(index, value, &format!("overwrites the {value}, which is still needed"));
        }
    }

    fn end(&mut self, value: Value, end: End) {
        // A value that was not there has been reported by the read before.
        if let Some(OpenLife { birth, used, .. }) = self.alive.remove(&value) {
            self.lives.push(Life { value, birth, end, used });
        }
    }

    /// Batches end with their last reader, logits and sums of gradients with the caller; anything else was forgotten.
    fn finish(&mut self) {
        let mut left: Vec<(Value, OpenLife)> = self.alive.drain().collect();
        left.sort_unstable_by_key(|(value, _)| *value);
        for (value, OpenLife { birth, last_use, used }) in left {
            let end = match value {
                Value::Batch(_) => End::After(last_use),
                Value::Output { unit: config::Unit::Head, .. } | Value::Reduced { .. } => End::Caller,
                Value::Output { .. }
                | Value::OutputGrad { .. }
                | Value::SavedUntilInput { .. }
                | Value::SavedUntilWeight { .. }
                | Value::CoreUntilInput { .. }
                | Value::CoreUntilWeight { .. }
                | Value::SavedInput { .. }
                | Value::Pending { .. }
                | Value::Gathered(_)
                | Value::Unreduced { .. }
                | Value::Staged { .. }
                | Value::OnHost { .. }
                | Value::Params(_)
                | Value::Accumulator { .. }
                | Value::Master(_)
                | Value::FirstMoment(_)
                | Value::SecondMoment(_)
                | Value::Average(_)
                | Value::Cache(_)
                | Value::Constants
                | Value::LossSums => {
                    let index = self.program.instrs.len();
                    self.violation(index, value, &format!("the {value}, written by instruction {birth}, is left over"));
                    End::Caller
                }
            };
            self.lives.push(Life { value, birth, end, used });
        }
    }
}
