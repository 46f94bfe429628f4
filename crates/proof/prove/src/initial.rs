//! Sizes of activations of a model with its initial weights: how much each branch adds to what it reads.

use std::collections::BTreeMap;

use config::{
    Activation, Blocks, ExpertsSpec, Init, ModelSpec, Position, QkNorm, RouterScores, RouterWeights, Routing,
    SWIGLU_LIMIT, SharedGate, TopQuery, Unit, all_params,
};

use crate::lengths::OF_SQUARE;

/// A layer with its initial weights.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Mean square of what attention adds.
    pub attention: f64,
    /// Mean square of what the feed-forward block adds.
    pub feed_forward: f64,
    /// Mean square of scores.
    pub score: f64,
    /// Mean square of inputs of the activation.
    pub input: f64,
    /// Relative variance of the square of one of its outputs.
    pub output_variance: f64,
    /// Width of the feed-forward block.
    pub width: usize,
    /// Keys that a query sees at most.
    pub keys: usize,
    /// Mean squares of what attention and the feed-forward block read.
    pub read: [f64; 2],
}

/// The stream and the layers, in forward order; the top query's is the last.
#[derive(Clone, Debug)]
pub struct Initial {
    /// Mean square of the stream in front of the first layer.
    pub stream: f64,
    pub layers: Vec<Layer>,
    /// Mean square of what the output matrix reads: a norm's output, or that of the top query's layer after it, divided
    /// as logits are.
    pub head: f64,
}

impl Initial {
    /// The mean squares of `model` with sequences of `tokens` tokens, of which each sees those before it.
    pub fn of(model: &ModelSpec, tokens: usize) -> Initial {
        let stds = standard_deviations(model);
        let layers = (0..model.num_layers as u32).map(|layer| (format!("layers.{layer}"), Unit::Layer(layer)));
        let top = match model.top_query {
            TopQuery::On => Some(("top_query".to_string(), Unit::Head)),
            TopQuery::Off => None,
        };
        let table = (f64::from(model.init_std) * f64::from(model.embedding_scale.unwrap_or(1.0))).powi(2);
        let stream = match (model.embedding_norm, model.position) {
            (true, _) => 1.0,
            (false, Position::Learned { .. }) => 2.0 * table,
            (false, Position::Rotary { .. } | Position::Alibi) => table,
        };
        let mut size = stream;
        let of = |(name, unit): (String, Unit)| {
            // The top query's layer reads a norm's output.
            let read = if unit.is_repeated() { size } else { 1.0 };
            let layer = layer(model, &stds, (&name, unit), (tokens, read));
            size += layer.attention + layer.feed_forward;
            layer
        };
        let layers: Vec<Layer> = layers.chain(top).map(of).collect();
        let last = match (model.top_query, layers.last()) {
            (TopQuery::On, Some(top)) => after(model.blocks, top),
            (TopQuery::On, None) | (TopQuery::Off, _) => 1.0,
        };
        let head = last / f64::from(model.logit_divisor.unwrap_or(1.0)).powi(2);
        Initial { stream, layers, head }
    }
}

/// Mean square of what the layer `top` makes of a norm's output.
fn after(blocks: Blocks, top: &Layer) -> f64 {
    match stream_weight(blocks) {
        // The second block's norm has made the stream whole again.
        Some(alpha) => alpha * alpha + top.feed_forward,
        None => 1.0 + top.attention + top.feed_forward,
    }
}

/// Standard deviations of initial weights, by name; those of norms and biases are left out.
pub fn standard_deviations(model: &ModelSpec) -> BTreeMap<String, f64> {
    let normal = |init| match init {
        Init::Normal { std } => Some(f64::from(std)),
        Init::Uniform { bound } => Some(f64::from(bound) / 3f64.sqrt()),
        Init::Zeros | Init::Ones => None,
    };
    all_params(model).filter_map(|param| Some((param.name, normal(param.init)?))).collect()
}

/// The mean of 1 / t over the places of a sequence whose tokens see `most` keys at most: what a mean over t keys leaves
/// of the mean square of values.
fn mean_share(tokens: usize, most: usize) -> f64 {
    (1..=tokens).map(|place| 1.0 / place.min(most) as f64).sum::<f64>() / tokens.max(1) as f64
}

/// The layer of `unit` where the stream in front of it has the mean square `stream`.
fn layer(
    model: &ModelSpec,
    stds: &BTreeMap<String, f64>,
    (name, unit): (&str, Unit),
    (tokens, stream): (usize, f64),
) -> Layer {
    let square = |map: &str| stds.get(&format!("{name}.{map}.weight")).map_or(0.0, |std| std * std);
    // Mean square of a map's output of `inputs` numbers of mean square 1.
    let gain = |map: &str, inputs: usize| square(map) * inputs as f64;
    let hidden = model.hidden;
    // The maps of one expert are those of a dense block of its width.
    let experts = model.experts_of(unit);
    let (width, up, down) = match experts {
        None => (model.ffn_hidden_of(unit), "ffn.up", "ffn.down"),
        Some(experts) if model.activation.inputs_per_output() == 1 => (experts.hidden, "experts.up", "experts.down"),
        Some(experts) => (experts.hidden, "experts.gate_up", "experts.down"),
    };
    let kept = 1.0 / (1.0 - f64::from(model.dropout));
    let keys = model.window_of(unit).map_or(tokens, |window| window.min(tokens));
    let (read, has_norm_after) = match model.blocks {
        Blocks::Sequential | Blocks::Parallel | Blocks::DeepNorm { .. } => ([1.0; 2], false),
        Blocks::Sandwich => ([1.0; 2], true),
        Blocks::PostNorm => ([stream, stream + kept], true),
    };
    let score = match model.qk_norm {
        QkNorm::Off => gain("attention.query", hidden) * gain("attention.key", hidden) * read[0].powi(2),
        QkNorm::Heads | QkNorm::Whole => 1.0,
    };
    let input = gain(up, hidden) * read[1];
    let attention = mean_share(tokens, keys)
        * read[0]
        * gain("attention.value", hidden)
        * gain("attention.output", model.query_width());
    let [output, output_square] = moments(model.activation, input);
    let shared = experts.and_then(|experts| experts.shared).map_or(0.0, |shared| match shared.gate {
        SharedGate::Open => output * gain("shared.down", shared.hidden),
        SharedGate::Learned => 0.25 * output * gain("shared.down", shared.hidden),
    });
    let feed_forward = output * gain(down, width) * experts.map_or(1.0, squared_weights) + shared;
    Layer {
        attention: kept * if has_norm_after { 1.0 } else { attention },
        feed_forward: kept * if has_norm_after { 1.0 } else { feed_forward },
        score,
        input,
        output_variance: if output > 0.0 { output_square / (output * output) - 1.0 } else { OF_SQUARE },
        width,
        keys,
        read,
    }
}

/// The sum of the squares of a token's weights, of a router whose logits are small.
fn squared_weights(experts: &ExpertsSpec) -> f64 {
    let Routing { scores, weights, scale, groups: _ } = experts.routing;
    let weight = match (weights, scores) {
        (RouterWeights::Normalised, _) => 1.0 / experts.per_token as f64,
        (RouterWeights::Scores, RouterScores::Softmax) => 1.0 / experts.number as f64,
        (RouterWeights::Scores, RouterScores::Sigmoid) => 0.5,
    };
    experts.per_token as f64 * (weight * f64::from(scale)).powi(2)
}

/// Mean square and mean fourth power of the outputs of `activation` whose inputs are normal with mean square `input`.
fn moments(activation: Activation, input: f64) -> [f64; 2] {
    const STEPS: i32 = 200;
    let quick = |x: f64| x / (1.0 + (-1.702 * x).exp());
    let gelu = |x: f64| x * 0.5 * (1.0 + (0.797_884_56 * (x + 0.044_715 * x.powi(3))).tanh());
    let function = |x: f64| match activation {
        Activation::GeluTanh | Activation::GeluErf | Activation::GeGlu | Activation::GeGluTanh => gelu(x),
        Activation::GeluSigmoid => quick(x),
        Activation::SwiGluClamped => quick(x.min(f64::from(SWIGLU_LIMIT))),
        Activation::Relu => x.max(0.0),
        Activation::SwiGlu => x / (1.0 + (-x).exp()),
    };
    let (mut sums, mut weights) = ([0.0; 2], 0.0);
    for step in -STEPS..=STEPS {
        let place = 6.0 * f64::from(step) / f64::from(STEPS);
        let weight = (-place * place / 2.0).exp();
        let square = function(place * input.sqrt()).powi(2);
        sums[0] += weight * square;
        sums[1] += weight * square * square;
        weights += weight;
    }
    // The mean fourth power of a normal number is three times the square of its mean square. Of one more than such a
    // number the means of the square and of the fourth power have the terms of a binomial; clamping makes them smaller.
    let of_values = match activation {
        Activation::GeluTanh | Activation::GeluErf | Activation::GeluSigmoid | Activation::Relu => [1.0; 2],
        Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh => [input, 3.0 * input * input],
        Activation::SwiGluClamped => [1.0 + input, 1.0 + 6.0 * input + 3.0 * input * input],
    };
    [of_values[0] * sums[0] / weights, of_values[1] * sums[1] / weights]
}

/// The weight of the stream that a branch is added to, where it has one.
pub fn stream_weight(blocks: Blocks) -> Option<f64> {
    match blocks {
        Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::Sandwich => None,
        Blocks::DeepNorm { alpha } => Some(f64::from(alpha)),
    }
}

#[cfg(test)]
mod tests {
    use testkit::models::{Style, proof_model};

    use super::*;

    #[test]
    fn activations_have_the_mean_squares_of_their_definitions() {
        assert!((moments(Activation::Relu, 2.0)[0] - 1.0).abs() < 1e-3);
        // At small inputs half of the input passes, and of a gated one half of the gate times the value.
        assert!((moments(Activation::GeluTanh, 1e-4)[0] - 0.25e-4).abs() < 1e-6);
        assert!((moments(Activation::SwiGlu, 1e-2)[0] - 0.25e-4).abs() < 1e-6);
        // The clamped kind lets one more than the value through.
        assert!((moments(Activation::SwiGluClamped, 1e-2)[0] - 0.25e-2 * 1.01).abs() < 1e-4);
        // Half of the outputs of ReLU are 0, and the mean fourth power of a normal number is 3; that of a product is 9.
        let variance = |activation, input| {
            let [square, fourth] = moments(activation, input);
            fourth / (square * square) - 1.0
        };
        assert!((variance(Activation::Relu, 2.0) - 5.0).abs() < 1e-2);
        assert!((variance(Activation::SwiGlu, 1e-4) - 8.0).abs() < 1e-1);
    }

    #[test]
    fn branches_of_the_proof_model_add_less_than_they_read() {
        let initial = Initial::of(&proof_model(Style::Llama, 12, false), 8);
        let added: f64 = initial.layers.iter().map(|layer| layer.attention + layer.feed_forward).sum();
        assert!(initial.layers.len() == 16 && added < initial.stream, "{added} to {}", initial.stream);
    }

    /// A norm's output has a mean square of 1; no norm follows the top query's layer.
    #[test]
    fn the_output_matrix_reads_a_norm_or_the_sum_of_the_top_layer() {
        let proof = ModelSpec { dropout: 0.0, ..proof_model(Style::Gpt2, 12, true) };
        let head = |top_query, blocks| Initial::of(&ModelSpec { top_query, blocks, ..proof.clone() }, 8).head;
        assert_eq!(head(TopQuery::Off, Blocks::Sandwich), 1.0);
        assert_eq!(head(TopQuery::On, Blocks::Sandwich), 3.0);
        let sequential = head(TopQuery::On, Blocks::Sequential);
        assert!(1.0 < sequential && sequential < 1.1, "{sequential}");
        let deep = head(TopQuery::On, Blocks::DeepNorm { alpha: 3.0 });
        assert!(9.0 < deep && deep < 9.1, "{deep}");
        let divided = Initial::of(&ModelSpec { logit_divisor: Some(4.0), ..proof.clone() }, 8).head;
        assert_eq!(divided, 1.0 / 16.0);
    }
}
