//! Where a unit's forward pass leaves what its backward passes read.

use device::Frame;

/// The two sections of a microbatch's saved activations. A pass that keeps nothing (evaluation, generation, or one that
/// is recomputed) writes them too, and they are given back as soon as it ends. Each call of a unit gets frames from
/// which nothing was taken yet: forward and backward passes lay out the same tensors in them, and so find the same
/// places.
#[derive(Clone, Copy, Debug)]
pub struct SavedFrames<'a> {
    /// Given back after the backward pass of the input.
    pub until_input: &'a Frame,
    /// Given back after the backward pass of the weights.
    pub until_weight: &'a Frame,
    /// Two more, where the attention core is recomputed, for what it leaves.
    core: Option<(&'a Frame, &'a Frame)>,
}

impl<'a> SavedFrames<'a> {
    /// Sections for everything.
    pub fn new(until_input: &'a Frame, until_weight: &'a Frame) -> SavedFrames<'a> {
        SavedFrames { until_input, until_weight, core: None }
    }

    /// These, but what the attention core leaves in sections of its own. They are given back after the forward pass,
    /// had again for [`Layer::recompute_core`](crate::Layer::recompute_core), and from then on live as long as the
    /// others.
    pub fn with_core(self, until_input: &'a Frame, until_weight: &'a Frame) -> SavedFrames<'a> {
        SavedFrames { core: Some((until_input, until_weight)), ..self }
    }

    /// The sections of what the attention core leaves.
    pub(crate) fn core(self) -> SavedFrames<'a> {
        match self.core {
            None => self,
            Some((until_input, until_weight)) => SavedFrames::new(until_input, until_weight),
        }
    }
}
