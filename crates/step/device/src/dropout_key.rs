//! The key of a dropout mask.

/// Which random numbers decide a dropout mask: a function of global indices, never of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropoutKey {
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step.
    pub step: u32,
    /// Which dropout of which layer.
    pub site: u32,
    /// Index of row 0 within the step: global sequence index x sequence length.
    pub first_token: u64,
    /// Global index of column 0 (of head 0, for attention probabilities).
    pub first_channel: u32,
    /// Probability of dropping; kept values are scaled by `1 / (1 - probability)`.
    pub probability: f32,
}
