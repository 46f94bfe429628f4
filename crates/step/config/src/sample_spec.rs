//! Texts that a run generates while it trains.

/// Continuations of prompts between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleSpec {
    /// Steps from one sample to the next; 0 for none.
    pub every: u32,
    /// The beginnings of the texts, at least one.
    pub prompts: Vec<String>,
    /// Tokens to add to each.
    pub tokens: usize,
    /// 0 for the most probable token, 1 for samples of the model's distribution.
    pub temperature: f32,
}
