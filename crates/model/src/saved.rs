//! Where a unit's forward pass leaves what its backward passes read.

use device::Frame;

/// The two sections of a microbatch's saved activations. Each call of a unit gets frames from which nothing was taken
/// yet: forward and backward passes lay out the same tensors in them, and so find the same places.
#[derive(Clone, Copy, Debug)]
pub struct SavedFrames<'a> {
    /// Given back after the backward pass of the input.
    pub until_input: &'a Frame,
    /// Given back after the backward pass of the weights.
    pub until_weight: &'a Frame,
}

/// What a forward pass keeps.
#[derive(Clone, Copy, Debug)]
pub enum Keep<'a> {
    /// Everything that the backward passes read.
    ForBackward(SavedFrames<'a>),
    /// Nothing: evaluation, generation, or a pass that is computed again before the backward pass. What must live between
    /// operations lives in the scratch frame.
    Nothing,
}
