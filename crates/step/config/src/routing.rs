//! How a router chooses experts for a token and weighs them.

use crate::names::names;

/// The rule of a router: `E` logits of a token become `k` experts, each with a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// The score `s` of each expert.
    pub scores: RouterScores,
    /// The weight of a chosen expert, from the scores.
    pub weights: RouterWeights,
    /// Factor of every weight.
    pub scale: f32,
    /// Groups of experts, if the choice is limited to the best of them.
    pub groups: Option<ExpertGroups>,
}

/// The score `s_i` of expert `i` with logit `z_i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScores {
    /// `exp(z_i) / sum over all experts of exp(z_j)`
    Softmax,
    /// `1 / (1 + exp(-z_i))`: DeepSeek-V3.
    Sigmoid,
}

names! { RouterScores: "softmax" = Softmax, "sigmoid" = Sigmoid }

/// The weight of a chosen expert, before [`Routing::scale`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterWeights {
    /// Its score: Qwen2-MoE, OLMoE.
    Scores,
    /// Its score divided by the sum of those of the chosen. With softmax that is softmax over the chosen logits:
    /// Mixtral, Qwen3-MoE, Granite.
    Normalised,
}

names! { RouterWeights: "scores" = Scores, "normalised" = Normalised }

/// Groups of equally many neighbouring experts. Experts of all groups but the best `kept` cannot be chosen. The score
/// of a group is the largest choice score of its experts with [`RouterScores::Softmax`] (DeepSeek-V2), the sum of the
/// two largest with [`RouterScores::Sigmoid`] (DeepSeek-V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// How many; a divisor of the experts.
    pub number: usize,
    /// Groups from which experts are chosen.
    pub kept: usize,
}
