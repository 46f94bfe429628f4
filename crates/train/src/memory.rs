//! From planned places to tensors: a rank's state and the frames of its instructions.

use device::{Frame, Tensor};
use model::{Batch, Constants, MicrobatchShape, placement::Residual};
use program::{MemoryPlan, Section, Value};
use spec::{Microbatch, ModelSpec, Unit};

/// A value that an instruction names has no place in the plan: a fault of the plan, found before the run by its tests.
fn place(plan: &MemoryPlan, value: Value) -> Section {
    match plan.place(value) {
        Some(section) => section,
        None => panic!("the memory plan has no place for {value}"),
    }
}

/// A frame over the value's place.
pub fn frame(plan: &MemoryPlan, value: Value) -> Frame {
    let section = place(plan, value);
    Frame::new(section.offset_bytes, section.len_bytes)
}

/// A frame over the value's place, or an empty one where the value takes no memory.
pub fn frame_or_empty(plan: &MemoryPlan, value: Value) -> Frame {
    plan.place(value).map_or(Frame::new(0, 0), |section| Frame::new(section.offset_bytes, section.len_bytes))
}

/// The first `len` floats of the value's place.
pub fn floats(plan: &MemoryPlan, value: Value, len: usize) -> Tensor {
    frame(plan, value).floats(1, len)
}

/// Shapes of what lives within a step.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    /// Where values lie.
    pub plan: &'a MemoryPlan,
    /// Sizes of the model.
    pub model: &'a ModelSpec,
    /// Sizes of a microbatch.
    pub shape: MicrobatchShape,
}

impl Activations<'_> {
    /// The residual stream behind `unit`: `[T, D]`.
    pub fn output(&self, unit: Unit, microbatch: Microbatch) -> Residual {
        Residual::new(self.stream(Value::Output { unit, microbatch }))
    }

    /// Gradient of [`Activations::output`].
    pub fn output_grad(&self, unit: Unit, microbatch: Microbatch) -> Residual {
        Residual::new(self.stream(Value::OutputGrad { unit, microbatch }))
    }

    /// Tokens, labels, positions and mask.
    pub fn batch(&self, microbatch: Microbatch) -> Batch {
        Batch::place(&frame(self.plan, Value::Batch(microbatch)), self.shape)
    }

    /// Tables and the step's sums.
    pub fn constants(&self) -> Constants {
        Constants::place(&frame(self.plan, Value::Constants), self.model)
    }

    fn stream(&self, value: Value) -> Tensor {
        frame(self.plan, value).floats(self.shape.tokens(), self.model.hidden)
    }
}
