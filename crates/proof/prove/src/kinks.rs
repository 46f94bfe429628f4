//! How far gradients are apart where inputs of an activation are on different sides of its kink (`docs/numerics.md`,
//! "Kinks").

use std::f64::consts::PI;

use config::{Blocks, ModelSpec};

use crate::jumps::most_of_jumps;
use crate::lengths::OF_SQUARE;
use crate::outweighing::spread_of_gradients;
use crate::parameter_kind::ParameterKind;
use crate::roundings::KinkedLayer;

/// A bias or norm next to a matrix is compared with at least twice a sum of random terms.
const TWICE_A_SUM: f64 = 0.5;
/// The same of a ReLU's output: half of the inputs are 0, the mean fourth power of the others is 3.
const OF_RELU: f64 = 5.0;

/// The jumps of one step's gradients, of a model whose activations have kinks.
pub(crate) struct Kinks<'a> {
    model: &'a ModelSpec,
    /// In forward order.
    layers: &'a [KinkedLayer],
    /// Tokens whose gradients count.
    counted: f64,
    /// Places of a sequence.
    places: usize,
    /// Relative distance of a layer's inputs for one rounding.
    of_rounding: f64,
}

/// Jumps of one layer.
#[derive(Clone, Copy)]
struct Jumps {
    /// Their mean number.
    mean: f64,
    /// The square that one of them adds, relative to the gradient, on average.
    square: f64,
}

impl<'a> Kinks<'a> {
    /// The kinks of `model` with the inputs of `layers`, of which `counted` tokens have a gradient in sequences of
    /// `places` tokens. A rounding moves an input by `of_rounding`, relative to its root mean square.
    pub(crate) fn of(
        model: &'a ModelSpec,
        layers: &'a [KinkedLayer],
        (counted, places): (f64, usize),
        of_rounding: f64,
    ) -> Kinks<'a> {
        Kinks { model, layers, counted, places, of_rounding }
    }

    /// The distance of gradients of `kind` that jumps make, which one pair of runs in 1 / `chance` exceeds.
    pub(crate) fn distance(&self, kind: ParameterKind, chance: f64) -> f64 {
        let tokens = self.spread_of_tokens();
        let stream = || self.exceeded(&self.through_stream(), tokens, chance);
        let inputs = || {
            let of_layer = |layer: usize| self.exceeded(&self.of_inputs(layer), tokens, chance);
            (0..self.layers.len()).map(of_layer).fold(0.0, f64::max)
        };
        let attention = |spread: f64| self.exceeded(&self.before_attention(), tokens * spread, chance);
        match kind {
            // Computed before any activation's gradient.
            ParameterKind::Output => 0.0,
            ParameterKind::Table => stream(),
            // A sum over tokens has few elements, and its own size varies more than that of a matrix.
            ParameterKind::Vector => {
                let ratio = kind.probability_factor() / ParameterKind::Matrix.probability_factor();
                ratio * stream().max(TWICE_A_SUM * inputs())
            }
            ParameterKind::Matrix => inputs().max(attention(self.spread_of_means())),
            ParameterKind::QueryKey => attention(self.spread_of_scores()),
            ParameterKind::QueryKeyVector => TWICE_A_SUM * self.distance(ParameterKind::QueryKey, chance),
        }
    }

    /// The jumps of one layer, relative to the gradient of its inputs: half of these have one, of random sign.
    fn of_layer(&self, layer: &KinkedLayer) -> Jumps {
        let inputs = self.counted * layer.width as f64;
        Jumps { mean: inputs * self.of_rounding * layer.input.sqrt() / PI, square: 2.0 / inputs }
    }

    /// Relative to the stream's gradient in front of the layer.
    fn passed(&self, layer: &KinkedLayer) -> Jumps {
        let own = self.of_layer(layer);
        Jumps { square: own.square * layer.passed, ..own }
    }

    /// Those that reach the matrix in front of a layer's inputs: its own, and those of later layers.
    fn of_inputs(&self, layer: usize) -> Vec<Jumps> {
        let later = self.layers[layer + 1..].iter().map(|later| self.passed(later));
        later.chain([self.of_layer(&self.layers[layer])]).collect()
    }

    /// Those that reach the embeddings: all.
    fn through_stream(&self) -> Vec<Jumps> {
        self.layers.iter().map(|layer| self.passed(layer)).collect()
    }

    /// Those that reach the first attention: where both blocks read the same stream, not those of its own layer.
    fn before_attention(&self) -> Vec<Jumps> {
        let first = match self.model.blocks {
            Blocks::Parallel => 1,
            Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => 0,
        };
        self.layers.iter().skip(first).map(|layer| self.passed(layer)).collect()
    }

    /// The root of the squares that these jumps add, where a jump's square has `spread` times the mean square of a
    /// normal number's, because tokens do not count the same.
    fn exceeded(&self, all: &[Jumps], spread: f64, chance: f64) -> f64 {
        let sum = |power: i32| all.iter().map(|jumps| jumps.mean * jumps.square.powi(power)).sum::<f64>();
        let (sum, squares) = (sum(1), sum(2));
        if squares == 0.0 {
            return 0.0;
        }
        // As many jumps of one size as have the same mean and variance. A normal number's square has three times the
        // mean square of its mean; a Gamma variable of shape a has 1 + 1 / a.
        let (mean, square, shape) = (sum * sum / squares, squares / sum, 1.0 / (3.0 * spread - 1.0));
        (square * most_of_jumps(mean, shape, chance)).sqrt()
    }

    /// Lengths of the tokens' gradients differ: in front of each layer by those of a vector of the stream and of the
    /// activation's outputs, which a norm divides by or which a direction meets. A norm after a block divides by the
    /// length of the block's sum as well.
    fn spread_of_tokens(&self) -> f64 {
        let hidden = self.model.hidden.max(1) as f64;
        let of_layer = |layer: &KinkedLayer| 1.0 + OF_SQUARE / hidden + OF_RELU / layer.width.max(1) as f64;
        let outputs: f64 = self.layers.iter().map(of_layer).product();
        // The head's norm is one more.
        let before = 1.0 + OF_SQUARE / hidden;
        let attention = 1.0 + OF_SQUARE / self.model.query_width().max(1) as f64;
        let both = || before * outputs * outputs * attention.powi(self.layers.len() as i32);
        let places = self.places.max(1) as f64;
        let among = |tokens: f64| spread_of_gradients(self.model, self.layers, tokens, self.places);
        match self.model.blocks {
            Blocks::Sequential | Blocks::Parallel | Blocks::DeepNorm { .. } => before * outputs,
            Blocks::Sandwich => among(self.counted).max(both()),
            // Of each sequence one place is counted.
            Blocks::PostNorm => (among(self.counted * places) / places).max(both()),
        }
    }

    /// A mean over t keys leaves 1 / t of the mean square of values, and of that of gradients.
    fn spread_of_means(&self) -> f64 {
        self.spread(|keys| 1.0 / keys)
    }

    /// Where t keys share a probability, the softmax leaves 1 / t - 1 / t^2; a jump's gradient has one number for each
    /// head.
    fn spread_of_scores(&self) -> f64 {
        self.spread(|keys| 1.0 / keys - 1.0 / (keys * keys)) * (1.0 + 2.0 / self.model.num_heads as f64)
    }

    /// The mean square of `weight` over the square of its mean, over the places of a sequence. A norm after the block
    /// divides a mean over t keys by its size, and so its gradient's square by 1 / t.
    fn spread(&self, weight: impl Fn(f64) -> f64) -> f64 {
        let divided = |keys: f64| match self.model.blocks {
            // One place outweighs the others, and it alone is counted.
            Blocks::PostNorm => 1.0,
            Blocks::Sandwich => weight(keys) * keys,
            Blocks::Sequential | Blocks::Parallel | Blocks::DeepNorm { .. } => weight(keys),
        };
        let keys = self.layers.iter().map(|layer| layer.keys).max().unwrap_or(self.places);
        let mean = |power: i32| {
            let of_place = |place: usize| divided(place.min(keys) as f64).powi(power);
            (1..=self.places).map(of_place).sum::<f64>() / self.places.max(1) as f64
        };
        let (mean, square) = (mean(1), mean(2));
        if mean > 0.0 { square / (mean * mean) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use config::{Activation, QkNorm};
    use testkit::models::{Style, proof_model};

    use super::*;
    use crate::lengths::SumLengths;

    const CHANCE: f64 = 1e-5;

    fn model(blocks: Blocks) -> ModelSpec {
        let proof = proof_model(Style::Gpt2, 4, true);
        let qk_norm = QkNorm::Off;
        ModelSpec { activation: Activation::Relu, qk_norm, hidden: 64, num_heads: 4, blocks, ..proof }
    }

    /// Layers of 256 inputs each that are all of the stream, or a part of it.
    fn layers(number: usize, passed: f64) -> Vec<KinkedLayer> {
        let lengths = SumLengths { attention: 0.07, feed_forward: 0.05 };
        vec![KinkedLayer { input: 6.0, width: 256, keys: 16, passed, passed_attention: passed, lengths }; number]
    }

    fn distances(blocks: Blocks, layers: &[KinkedLayer]) -> [f64; ParameterKind::ALL.len()] {
        let model = model(blocks);
        let kinks = Kinks::of(&model, layers, (64.0, 16), 1.5e-4);
        ParameterKind::ALL.map(|kind| kinks.distance(kind, CHANCE))
    }

    #[test]
    fn jumps_of_all_following_layers_reach_a_parameter() {
        let [table, output, matrix, query, vector, query_vector] = distances(Blocks::Sequential, &layers(2, 1.0));
        assert_eq!((output, query_vector), (0.0, 0.5 * query));
        assert!(table < matrix && table < query && table < vector, "{table} {matrix} {query} {vector}");
        let [one, .., of_one, _, _] = distances(Blocks::Sequential, &layers(1, 1.0));
        assert!(one < 0.95 * table && of_one < 0.95 * query, "{one} of {table}, {of_one} of {query}");
        // A layer that adds nothing to the stream passes no jumps on, but for those of its own inputs.
        let [table, _, matrix, query, ..] = distances(Blocks::Sequential, &layers(2, 0.0));
        assert_eq!((table, query), (0.0, 0.0));
        assert!(matrix > 0.0);
        // Where both blocks read the same stream, attention has the jumps of the layers after it.
        let [table, _, _, query, ..] = distances(Blocks::Parallel, &layers(1, 1.0));
        assert!(query == 0.0 && table > 0.0);
    }

    #[test]
    fn few_places_and_heads_carry_gradients_of_scores() {
        let (plain, layers) = (model(Blocks::Sequential), layers(1, 1.0));
        let sandwich = model(Blocks::Sandwich);
        let spread = |model, places| {
            let kinks = Kinks::of(model, &layers, (64.0, places), 1.5e-4);
            [kinks.spread_of_means(), kinks.spread_of_scores() / (1.0 + 2.0 / 4.0)]
        };
        let [means, scores] = spread(&plain, 16);
        assert!((means - 2.2).abs() < 0.05 && (scores - 1.3).abs() < 0.05, "{means} {scores}");
        assert!((spread(&plain, 4)[0] - 1.3).abs() < 0.05);
        // Norms after blocks divide by what the mean leaves.
        assert!((spread(&sandwich, 16)[0] - 1.0).abs() < 1e-9);
    }
}
