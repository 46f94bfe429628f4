//! Where a unit's forward pass leaves what its backward passes read.

use device::Frame;

/// The two sections of a microbatch's saved activations. A pass that keeps nothing (evaluation, generation, or one that is
/// computed again) writes them too, and they are given back as soon as it ends. Each call of a unit gets frames from which nothing was taken
/// yet: forward and backward passes lay out the same tensors in them, and so find the same places.
#[derive(Clone, Copy, Debug)]
pub struct SavedFrames<'a> {
    /// Given back after the backward pass of the input.
    pub until_input: &'a Frame,
    /// Given back after the backward pass of the weights.
    pub until_weight: &'a Frame,
}
