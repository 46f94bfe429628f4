//! From planned places to tensors: a rank's state and the frames of its instructions.

use config::{LayerRecompute, Microbatch, ModelSpec, Unit};
use device::{Dtype, Frame, Tensor};
use model::{Batch, Constants, MicrobatchShape, Residual, SavedFrames};
use program::{Extent, RankPlan, Value};

/// The first `len` numbers of a piece of state.
///
/// # Panics
/// The plan has no place for it: a fault of the plan, which its own tests exclude.
pub fn state_numbers(plan: &RankPlan, value: Value, len: usize, dtype: Dtype) -> Tensor {
    frame_of(value, plan.extent_of_state(value)).tensor(1, len, dtype)
}

/// The first `len` numbers of a value while instruction `at` runs.
///
/// # Panics
/// The panics of [`state_numbers`].
pub fn numbers_at(plan: &RankPlan, value: Value, at: usize, len: usize, dtype: Dtype) -> Tensor {
    frame_of(value, plan.extent(value, at)).tensor(1, len, dtype)
}

/// Tables and the step's sums.
pub fn constants(plan: &RankPlan, model: &ModelSpec) -> Constants {
    let frame = |value| frame_of(value, plan.extent_of_state(value));
    Constants::lay_out(&frame(Value::Constants), &frame(Value::LossSums), model)
}

/// Where a unit's cache is laid out.
///
/// # Panics
/// The panics of [`state_numbers`].
pub fn cache(plan: &RankPlan, unit: Unit) -> Frame {
    frame_of(Value::Cache(unit), plan.extent_of_state(Value::Cache(unit)))
}

/// The room of a planned place.
pub fn frame(extent: Extent) -> Frame {
    Frame::new(extent.offset_bytes, extent.len_bytes.next_multiple_of(device::ALIGN_BYTES))
}

fn frame_of(value: Value, extent: Option<Extent>) -> Frame {
    match extent {
        Some(extent) => frame(extent),
        None => panic!("the memory plan has no place for the {value} here"),
    }
}

/// Shapes of what lives within a step.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    /// Places of values.
    pub plan: &'a RankPlan,
    /// The instruction that asks: values of a step move when they are recomputed.
    pub at: usize,
    /// Sizes of the model.
    pub model: &'a ModelSpec,
    /// Sizes of a microbatch.
    pub shape: MicrobatchShape,
    /// The stored type of activations.
    pub stored: Dtype,
    /// Rows of the residual stream that this rank holds.
    pub residual_rows: usize,
}

impl Activations<'_> {
    /// The residual stream after `unit`: `[R, D]`, the rows of this rank.
    pub fn output(&self, unit: Unit, microbatch: Microbatch) -> Residual {
        Residual::new(self.stream(Value::Output { unit, microbatch }))
    }

    /// Gradient of [`Activations::output`].
    pub fn output_grad(&self, unit: Unit, microbatch: Microbatch) -> Residual {
        Residual::new(self.stream(Value::OutputGrad { unit, microbatch }))
    }

    /// The output of a generating program's head.
    pub fn logits(&self, microbatch: Microbatch, rows: usize, cols: usize) -> Tensor {
        self.frame(Value::Output { unit: Unit::Head, microbatch }).floats(rows, cols)
    }

    /// Tokens, labels, positions and mask.
    pub fn batch(&self, microbatch: Microbatch) -> Batch {
        Batch::lay_out(&self.frame(Value::Batch(microbatch)), self.model, self.shape)
    }

    /// Values that the backward pass of the input leaves for that of the weights.
    pub fn pending(&self, unit: Unit, microbatch: Microbatch) -> Frame {
        self.frame(Value::Pending { unit, microbatch })
    }

    /// Activations of the unit's forward pass, of which those of `recompute` are recomputed.
    pub fn saved(&self, unit: Unit, microbatch: Microbatch, recompute: LayerRecompute) -> Saved {
        let (until_input, until_weight) =
            (Value::SavedUntilInput { unit, microbatch }, Value::SavedUntilWeight { unit, microbatch });
        let core = match recompute {
            LayerRecompute::Nothing | LayerRecompute::Everything(_) => None,
            LayerRecompute::Core => {
                Some([Value::CoreUntilInput { unit, microbatch }, Value::CoreUntilWeight { unit, microbatch }])
            }
        };
        Saved {
            until_input: self.frame(until_input),
            until_weight: self.frame(until_weight),
            core: core.map(|values| values.map(|value| self.frame(value))),
        }
    }

    /// Returns the same as [`Activations::saved`] when the backward pass of the input is done: its part is gone.
    pub fn saved_until_weight(&self, unit: Unit, microbatch: Microbatch, recompute: LayerRecompute) -> Saved {
        let core = match recompute {
            LayerRecompute::Nothing | LayerRecompute::Everything(_) => None,
            LayerRecompute::Core => Some([Frame::nowhere(), self.frame(Value::CoreUntilWeight { unit, microbatch })]),
        };
        let until_weight = self.frame(Value::SavedUntilWeight { unit, microbatch });
        Saved { until_input: Frame::nowhere(), until_weight, core }
    }

    /// Where a tensor-parallel rank keeps its run of the unit's input.
    pub fn saved_input(&self, unit: Unit, microbatch: Microbatch) -> Frame {
        self.frame(Value::SavedInput { unit, microbatch })
    }

    /// All bytes of a value, in words: its room is a multiple of them.
    pub fn words(&self, value: Value) -> Tensor {
        let extent = self.plan.extent(value, self.at);
        let len_bytes = extent.map_or(0, |extent| extent.len_bytes);
        frame_of(value, extent).floats(1, len_bytes.div_ceil(Dtype::F32.size_bytes()))
    }

    fn frame(&self, value: Value) -> Frame {
        frame_of(value, self.plan.extent(value, self.at))
    }

    fn stream(&self, value: Value) -> Tensor {
        self.frame(value).tensor(self.residual_rows, self.model.hidden, self.stored)
    }
}

/// The sections of one unit's saved activations.
pub struct Saved {
    until_input: Frame,
    until_weight: Frame,
    core: Option<[Frame; 2]>,
}

impl Saved {
    /// Borrowed, as units take them.
    pub fn frames(&self) -> SavedFrames<'_> {
        let all = SavedFrames::new(&self.until_input, &self.until_weight);
        match &self.core {
            None => all,
            Some([until_input, until_weight]) => all.with_core(until_input, until_weight),
        }
    }
}
