//! How many bytes a unit needs per microbatch: recorded by running its code on a `MetaDevice`.

use config::PerClass;

use crate::ActivationPart;

/// Bytes of one unit for one microbatch on one tensor-parallel rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The unit's output: the activation that the next unit reads. Its gradient has the same size.
    pub output_bytes: usize,
    /// Saved by the forward pass, read by the backward pass of the input only.
    pub saved_until_input_bytes: usize,
    /// Saved by the forward pass, read until the backward pass of the weights.
    pub saved_until_weight_bytes: usize,
    /// Results of the attention core that the backward pass of the input only reads, where the core is recomputed;
    /// otherwise they are among what is saved.
    pub core_until_input_bytes: usize,
    /// Bytes like [`Footprint::core_until_input_bytes`], read until the backward pass of the weights.
    pub core_until_weight_bytes: usize,
    /// A tensor-parallel rank's run of the tokens of the unit's input, where it is kept for computing the unit again.
    pub saved_input_bytes: usize,
    /// Written by the backward pass of the input for that of the weights.
    pub pending_bytes: usize,
    /// Temporary memory of the largest single instruction.
    pub scratch_bytes: usize,
}

impl Footprint {
    /// Bytes of an activation that is kept for a backward pass.
    pub fn kept_bytes(&self, part: ActivationPart) -> usize {
        match part {
            ActivationPart::Output => self.output_bytes,
            ActivationPart::UntilInput => self.saved_until_input_bytes,
            ActivationPart::UntilWeight => self.saved_until_weight_bytes,
            ActivationPart::SavedInput => self.saved_input_bytes,
        }
    }
}

/// Footprints of all units, and what every rank needs besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprints {
    /// Tokens, labels, positions and mask of a microbatch.
    pub batch_bytes: usize,
    /// Tables that never change: rotary angles.
    pub constant_bytes: usize,
    /// Sums of the step: loss, valid tokens, norm, clip coefficient.
    pub loss_sums_bytes: usize,
    /// Of one unit; nothing for the table, which computes nothing.
    pub units: PerClass<Footprint>,
}
