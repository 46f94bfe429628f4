//! Values that instructions read and write, by name. A value's name is the same on every rank; its memory is each
//! rank's own.

use std::fmt;

use config::{Microbatch, Unit};

/// A piece of memory with a meaning. Some live within a step; the others are state that outlives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Tokens, labels, positions and mask.
    Batch(Microbatch),
    /// The output of the unit for the next one: `x[B*S, D]`; logits where the head of a generating program computes
    /// them.
    Output { unit: Unit, microbatch: Microbatch },
    /// Gradient of the loss with respect to the unit's output.
    OutputGrad { unit: Unit, microbatch: Microbatch },
    /// Saved by the forward pass (or its recomputation) for the backward pass of the input.
    SavedUntilInput { unit: Unit, microbatch: Microbatch },
    /// Saved by the forward pass (or its recomputation) for both backward passes.
    SavedUntilWeight { unit: Unit, microbatch: Microbatch },
    /// Results of the attention core that the backward pass of the input reads, where the core is recomputed.
    CoreUntilInput { unit: Unit, microbatch: Microbatch },
    /// Results of the attention core that both backward passes read, where the core is recomputed.
    CoreUntilWeight { unit: Unit, microbatch: Microbatch },
    /// This rank's run of the tokens of the unit's input, where the unit is recomputed from it.
    SavedInput { unit: Unit, microbatch: Microbatch },
    /// Left by the backward pass of the input for that of the weights.
    Pending { unit: Unit, microbatch: Microbatch },
    /// The unit's flat parameters, gathered, where state holds a shard of them.
    Gathered(Unit),
    /// The gradient of `unit`'s parameters that `by` made since the last reduction, whole, where ranks keep shards of
    /// the sum.
    Unreduced { unit: Unit, by: Unit },
    /// This rank's shard of the sum of what `by` made, over ranks and microbatches. It lives from the first reduction
    /// to the end.
    Reduced { unit: Unit, by: Unit },
    /// The unit's flat parameters: all of them, or this rank's shard.
    Params(Unit),
    /// The gradient of `unit`'s parameters as far as `by` made it: of the unit's padded length.
    /// Sums start from zero: the executor clears it, or lets the first contribution overwrite it.
    Accumulator { unit: Unit, by: Unit },
    /// The weights that the optimizer updates, where they are not the parameters themselves: all of it, or this rank's
    /// shard.
    Master(Unit),
    /// Mean of gradients: all of it, or this rank's shard.
    FirstMoment(Unit),
    /// Mean of squared gradients: all of it, or this rank's shard.
    SecondMoment(Unit),
    /// Moving average of the weights: all of it, or this rank's shard.
    Average(Unit),
    /// A part of the unit's optimizer state that is in memory of the host, in the arena around its update.
    Staged { unit: Unit, part: OptimizerPart },
    /// An activation of the unit in memory of the host, from its layer's forward pass to the backward pass.
    OnHost { unit: Unit, microbatch: Microbatch, part: ActivationPart },
    /// Keys and values of the tokens before, of one layer.
    Cache(Unit),
    /// Tables that never change.
    Constants,
    /// Sums of the step: loss, valid tokens, norm, clip coefficient. The executor clears them before a program.
    LossSums,
}

/// A part of the state that only the optimizer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptimizerPart {
    /// [`Value::Master`].
    Master,
    /// [`Value::FirstMoment`].
    FirstMoment,
    /// [`Value::SecondMoment`].
    SecondMoment,
    /// [`Value::Average`].
    Average,
}

impl OptimizerPart {
    /// All parts.
    pub const ALL: [OptimizerPart; 4] =
        [OptimizerPart::Master, OptimizerPart::FirstMoment, OptimizerPart::SecondMoment, OptimizerPart::Average];

    /// The state of `unit` that it is a part of.
    pub fn of(self, unit: Unit) -> Value {
        match self {
            OptimizerPart::Master => Value::Master(unit),
            OptimizerPart::FirstMoment => Value::FirstMoment(unit),
            OptimizerPart::SecondMoment => Value::SecondMoment(unit),
            OptimizerPart::Average => Value::Average(unit),
        }
    }
}

impl fmt::Display for OptimizerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OptimizerPart::Master => "master weights",
            OptimizerPart::FirstMoment => "first moment",
            OptimizerPart::SecondMoment => "second moment",
            OptimizerPart::Average => "average",
        })
    }
}

/// An activation that a layer's forward pass leaves for its backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActivationPart {
    /// [`Value::Output`] of the unit before.
    Output,
    /// [`Value::SavedUntilInput`].
    UntilInput,
    /// [`Value::SavedUntilWeight`].
    UntilWeight,
    /// [`Value::SavedInput`].
    SavedInput,
}

impl ActivationPart {
    /// The value in the arena of which it is the copy.
    pub fn of(self, unit: Unit, microbatch: Microbatch) -> Value {
        match self {
            ActivationPart::Output => Value::Output { unit, microbatch },
            ActivationPart::UntilInput => Value::SavedUntilInput { unit, microbatch },
            ActivationPart::UntilWeight => Value::SavedUntilWeight { unit, microbatch },
            ActivationPart::SavedInput => Value::SavedInput { unit, microbatch },
        }
    }
}

impl fmt::Display for ActivationPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ActivationPart::Output => "output",
            ActivationPart::UntilInput => "saved until input",
            ActivationPart::UntilWeight => "saved until weight",
            ActivationPart::SavedInput => "saved input",
        })
    }
}

impl Value {
    /// Whether the value outlives the program: written before it starts, never freed.
    pub fn is_state(self) -> bool {
        match self {
            Value::Batch(_)
            | Value::Output { .. }
            | Value::OutputGrad { .. }
            | Value::SavedUntilInput { .. }
            | Value::SavedUntilWeight { .. }
            | Value::CoreUntilInput { .. }
            | Value::CoreUntilWeight { .. }
            | Value::SavedInput { .. }
            | Value::Pending { .. }
            | Value::Gathered(_)
            | Value::Unreduced { .. }
            | Value::Reduced { .. }
            | Value::Staged { .. }
            | Value::OnHost { .. } => false,
            Value::Params(_)
            | Value::Accumulator { .. }
            | Value::Master(_)
            | Value::FirstMoment(_)
            | Value::SecondMoment(_)
            | Value::Average(_)
            | Value::Cache(_)
            | Value::Constants
            | Value::LossSums => true,
        }
    }

    /// The microbatch of a value that is about one.
    pub fn microbatch(self) -> Option<Microbatch> {
        match self {
            Value::Batch(microbatch)
            | Value::Output { microbatch, .. }
            | Value::OutputGrad { microbatch, .. }
            | Value::SavedUntilInput { microbatch, .. }
            | Value::SavedUntilWeight { microbatch, .. }
            | Value::CoreUntilInput { microbatch, .. }
            | Value::CoreUntilWeight { microbatch, .. }
            | Value::SavedInput { microbatch, .. }
            | Value::Pending { microbatch, .. }
            | Value::OnHost { microbatch, .. } => Some(microbatch),
            Value::Gathered(_)
            | Value::Unreduced { .. }
            | Value::Reduced { .. }
            | Value::Staged { .. }
            | Value::Params(_)
            | Value::Accumulator { .. }
            | Value::Master(_)
            | Value::FirstMoment(_)
            | Value::SecondMoment(_)
            | Value::Average(_)
            | Value::Cache(_)
            | Value::Constants
            | Value::LossSums => None,
        }
    }
}

impl fmt::Display for Value {
    /// `output of layer 3, microbatch 0`; the alternate form `{:#}` leaves the microbatch out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Batch(_) => f.write_str("batch")?,
            Value::Output { unit, .. } => write!(f, "output of {unit}")?,
            Value::OutputGrad { unit, .. } => write!(f, "output gradient of {unit}")?,
            Value::SavedUntilInput { unit, .. } => write!(f, "saved until input of {unit}")?,
            Value::SavedUntilWeight { unit, .. } => write!(f, "saved until weight of {unit}")?,
            Value::CoreUntilInput { unit, .. } => write!(f, "attention core until input of {unit}")?,
            Value::CoreUntilWeight { unit, .. } => write!(f, "attention core until weight of {unit}")?,
            Value::SavedInput { unit, .. } => write!(f, "saved input of {unit}")?,
            Value::Pending { unit, .. } => write!(f, "pending of {unit}")?,
            Value::Gathered(unit) => write!(f, "gathered parameters of {unit}")?,
            Value::Unreduced { unit, by } if unit == by => write!(f, "unreduced gradients of {unit}")?,
            Value::Unreduced { unit, by } => write!(f, "unreduced gradients of {unit} made by {by}")?,
            Value::Reduced { unit, by } if unit == by => write!(f, "reduced gradients of {unit}")?,
            Value::Reduced { unit, by } => write!(f, "reduced gradients of {unit} made by {by}")?,
            Value::Params(unit) => write!(f, "parameters of {unit}")?,
            Value::Accumulator { unit, by } if unit == by => write!(f, "gradients of {unit}")?,
            Value::Accumulator { unit, by } => write!(f, "gradients of {unit} made by {by}")?,
            Value::Master(unit) => write!(f, "master weights of {unit}")?,
            Value::FirstMoment(unit) => write!(f, "first moment of {unit}")?,
            Value::SecondMoment(unit) => write!(f, "second moment of {unit}")?,
            Value::Average(unit) => write!(f, "average of {unit}")?,
            Value::Staged { unit, part } => write!(f, "staged {part} of {unit}")?,
            Value::OnHost { unit, part, .. } => write!(f, "{part} of {unit} in memory of the host")?,
            Value::Cache(unit) => write!(f, "cache of {unit}")?,
            Value::Constants => f.write_str("constants")?,
            Value::LossSums => f.write_str("sums")?,
        }
        match (self.microbatch(), f.alternate()) {
            (Some(microbatch), false) => write!(f, ", {microbatch}"),
            (Some(_), true) | (None, _) => Ok(()),
        }
    }
}

/// A few values, without allocation.
#[derive(Clone, Copy)]
pub struct Values {
    list: [Value; Values::CAPACITY],
    len: u8,
}

impl Values {
    /// The most that one instruction names.
    pub const CAPACITY: usize = 11;

    /// No values.
    pub const NONE: Values = Values { list: [Value::Constants; Values::CAPACITY], len: 0 };

    /// The given values, at most [`Values::CAPACITY`].
    pub fn of(values: impl IntoIterator<Item = Value>) -> Values {
        Values::NONE.with_each(values)
    }

    /// These values and one more.
    pub fn with(mut self, value: Value) -> Values {
        self.push(value);
        self
    }

    /// These values and others. In place: a fold over [`Values::with`] copies all values for each, and a step has
    /// hundreds of thousands of instructions.
    pub(crate) fn with_each(mut self, values: impl IntoIterator<Item = Value>) -> Values {
        values.into_iter().for_each(|value| self.push(value));
        self
    }

    fn push(&mut self, value: Value) {
        let len = usize::from(self.len);
        assert!(len < Values::CAPACITY, "an instruction names at most {} values of one sort", Values::CAPACITY);
        self.list[len] = value;
        self.len += 1;
    }

    /// These values and, where there is one, another.
    pub fn with_some(self, value: Option<Value>) -> Values {
        self.with_each(value)
    }

    /// These values and, where there are some, others.
    pub fn with_all<const N: usize>(self, values: Option<[Value; N]>) -> Values {
        self.with_each(values.into_iter().flatten())
    }

    /// The values as a slice.
    pub fn as_slice(&self) -> &[Value] {
        &self.list[..usize::from(self.len)]
    }

    /// The values one by one.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        self.as_slice().iter().copied()
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Values) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Values {}
