//! Layers with experts: each token goes through some of many feed-forward blocks.

use crate::balance::Balance;
use crate::model::{ModelSpec, TopQuery};
use crate::routing::Routing;
use crate::unit::Unit;

/// The experts of a model: in the layers that have them they take the place of the feed-forward block, and a router
/// chooses those that a token goes through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsSpec {
    /// Experts `E` of a layer.
    pub number: usize,
    /// Experts `k` that a token goes through.
    pub per_token: usize,
    /// Width `F` of an expert, of its output side for gated activations.
    pub hidden: usize,
    /// An expert of its own that all tokens go through.
    pub shared: Option<SharedExpert>,
    /// The first layer with experts.
    pub first_layer: usize,
    /// From one layer with experts to the next.
    pub layer_interval: usize,
    /// How experts are chosen and weighed.
    pub routing: Routing,
    /// How their load is balanced.
    pub balance: Balance,
}

/// The expert of all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    /// Its width.
    pub hidden: usize,
    /// Whether a gate weighs its output.
    pub gate: SharedGate,
}

/// The factor of the shared expert's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedGate {
    /// 1.
    Open,
    /// `sigmoid(x . w)`, with a learned `w[D]`: Qwen 2 MoE.
    Learned,
}

impl ExpertsSpec {
    /// Whether `layer` has experts.
    pub fn are_in(&self, layer: u32) -> bool {
        let layer = layer as usize;
        layer >= self.first_layer && (layer - self.first_layer).is_multiple_of(self.layer_interval.max(1))
    }

    /// The most rows that the experts of one of `ranks` ranks, which have equally many, can be given of `tokens` tokens
    /// whatever the router chooses.
    pub fn most_rows(&self, tokens: usize, ranks: usize) -> usize {
        tokens * self.per_token.min(self.number / ranks)
    }
}

impl ModelSpec {
    /// The experts of a layer of the stack; `None` for one without experts, and for other units.
    pub fn experts_of(&self, unit: Unit) -> Option<&ExpertsSpec> {
        match unit {
            Unit::Layer(layer) | Unit::Experts(layer) if (layer as usize) < self.num_layers => {
                self.experts.as_ref().filter(|experts| experts.are_in(layer))
            }
            Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => None,
        }
    }

    /// Layers of the stack with experts.
    pub fn num_expert_layers(&self) -> usize {
        self.experts.map_or(0, |experts| {
            self.num_layers.saturating_sub(experts.first_layer).div_ceil(experts.layer_interval.max(1))
        })
    }

    /// Whether any layer has a dense feed-forward block, the top query's among them.
    pub fn has_dense_blocks(&self) -> bool {
        self.top_query == TopQuery::On || self.num_expert_layers() < self.num_layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RouterScores, RouterWeights, RunConfig};

    fn experts(first_layer: usize, layer_interval: usize) -> ExpertsSpec {
        let (scores, weights) = (RouterScores::Softmax, RouterWeights::Normalised);
        let routing = Routing { scores, weights, scale: 1.0, groups: None };
        let balance = Balance::NONE;
        ExpertsSpec { number: 8, per_token: 2, hidden: 32, shared: None, first_layer, layer_interval, routing, balance }
    }

    #[test]
    fn layers_with_experts_begin_at_one_and_repeat() {
        for (first, interval, expected) in [(0, 1, &[0, 1, 2, 3, 4, 5][..]), (1, 2, &[1, 3, 5]), (3, 1, &[3, 4, 5])] {
            let experts = Some(experts(first, interval));
            let model = ModelSpec { num_layers: 6, experts, ..RunConfig::quick_start().model };
            let layers: Vec<u32> = (0..8).filter(|layer| model.experts_of(Unit::Layer(*layer)).is_some()).collect();
            assert_eq!(layers, expected, "from {first}, every {interval}");
            assert_eq!((model.num_expert_layers(), model.has_dense_blocks()), (expected.len(), expected.len() < 6));
        }
    }

    #[test]
    fn a_rank_has_no_more_rows_than_experts_for_a_token() {
        let experts = experts(0, 1);
        assert_eq!([1, 2, 4, 8].map(|ranks| experts.most_rows(10, ranks)), [20, 20, 20, 10]);
    }
}
