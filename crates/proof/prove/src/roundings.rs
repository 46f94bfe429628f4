//! Roundings that separate two runs, counted along the forward and the backward pass (`docs/numerics.md`, "The count").
//!
//! One rounding is a relative variance of 0.18 u^2 of the tensor that it is in. Sums of tensors add variances weighted
//! by mean squares; products add those of their factors.

use config::{Blocks, Format, ModelSpec, QkNorm, TrainSpec};

use crate::initial::{Initial, Layer, stream_weight};
use crate::lengths::{InverseSquares, SumLengths, has_norms_after};
use crate::parameter_kind::ParameterKind;

/// Roundings relative to each kind's gradients, and to what losses and kinks depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Roundings {
    /// Of embeddings.
    pub table: f64,
    /// Of the output matrix.
    pub output: f64,
    /// Of other matrices.
    pub matrix: f64,
    /// Of queries and keys.
    pub query_key: f64,
    /// Of norms and biases.
    pub vector: f64,
    /// Of inputs of activations, the largest.
    pub input: f64,
    /// Of the stream that the head reads.
    pub stream: f64,
    /// Inputs of activations of each layer.
    pub kinked: Vec<KinkedLayer>,
}

/// Inputs of a layer's activation, and what its gradient passes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KinkedLayer {
    /// Roundings of the inputs.
    pub input: f64,
    /// Width of the feed-forward block.
    pub width: usize,
    /// Keys that a query of the layer sees at most.
    pub keys: usize,
    /// The part of the stream's gradient in front of the layer, as a mean square, that has passed these inputs.
    pub passed: f64,
    /// The same of the layer's attention.
    pub passed_attention: f64,
    /// Lengths of the layer's sums.
    pub lengths: SumLengths,
}

impl Roundings {
    /// The roundings of gradients of `kind`.
    pub fn of_kind(&self, kind: ParameterKind) -> f64 {
        match kind {
            ParameterKind::Table => self.table,
            ParameterKind::Output => self.output,
            ParameterKind::Matrix => self.matrix,
            ParameterKind::QueryKey | ParameterKind::QueryKeyVector => self.query_key,
            ParameterKind::Vector => self.vector,
        }
    }

    /// Where only sums over sequences are in another order: those of one sum over all `tokens`.
    pub fn of_other_order(tokens: usize) -> Roundings {
        let sum = chain(tokens) + 1.0;
        Roundings {
            table: sum,
            output: sum,
            matrix: sum,
            query_key: sum,
            vector: sum,
            input: 0.0,
            stream: 0.0,
            kinked: vec![],
        }
    }

    /// Where sums within a token are split differently, in runs whose activations are `stored`.
    pub fn of_other_sums(model: &ModelSpec, train: &TrainSpec, stored: Format) -> Roundings {
        let all_tokens = train.global_batch * train.sequence_length;
        let cost = Cost { model, stored, tokens: train.sequence_length, all_tokens };
        let sum = cost.sum_over_tokens(all_tokens);
        let initial = Initial::of(model, train.sequence_length);
        let (passed, stream) = forward(&cost, &initial);
        // The input of the output matrix and its gradient are divided as logits are, and rounded.
        let divided = model.logit_divisor.map_or(0.0, |_| cost.of(1.0));
        let read = stream + cost.norm() + divided;
        let size = initial.head * f64::from(model.init_std).powi(2) * model.hidden as f64;
        let logits = read * size / model.vocabulary as f64;
        let head = logits + cost.vocabulary();
        let into_stream = head + 0.5 * read + 1.0 + divided;
        let mut roundings = Roundings {
            table: 0.0,
            output: read + sum,
            matrix: 0.0,
            query_key: 0.0,
            vector: into_stream + read + sum,
            input: passed.iter().map(|layer| layer.input).fold(0.0, f64::max),
            stream,
            kinked: passed.iter().map(|layer| layer.kinked(model)).collect(),
        };
        let mut gradient = into_stream;
        for layer in passed.iter().rev() {
            gradient = backward(&cost, layer, gradient, sum, &mut roundings);
        }
        roundings.table = gradient + sum;
        roundings
    }
}

/// Roundings of a sum of `terms` random terms, relative to it: chains of 256, which are added.
pub(crate) fn chain(terms: usize) -> f64 {
    terms.min(256) as f64 / 2.0 + terms as f64 / 512.0
}

/// Roundings of operations: in single precision those of their sums, in bf16 and fp16 those of stored results.
struct Cost<'a> {
    model: &'a ModelSpec,
    stored: Format,
    /// Of a sequence.
    tokens: usize,
    /// Of a step.
    all_tokens: usize,
}

impl Cost<'_> {
    fn of(&self, single: f64) -> f64 {
        match self.stored {
            Format::Fp32 => single,
            Format::Bf16 | Format::Fp16 => 1.0,
        }
    }

    fn product(&self, terms: usize) -> f64 {
        self.of(chain(terms) + 0.5)
    }

    fn norm(&self) -> f64 {
        self.of(4.0)
    }

    fn activation(&self) -> f64 {
        self.of(4.0)
    }

    /// Inverse squares of the lengths of the sums of the blocks of `layer`, by which norms after the blocks divide
    /// their errors: short sums have as large ones as others. All are 1 where no norms follow blocks.
    fn short_sums(&self, layer: &Layer) -> [InverseSquares; 2] {
        if !has_norms_after(self.model.blocks) {
            return [InverseSquares::EQUAL; 2];
        }
        let lengths = SumLengths::of(self.model, layer.width, layer.output_variance);
        [lengths.attention, lengths.feed_forward].map(|variance| InverseSquares::of(variance, self.all_tokens as f64))
    }

    /// A mean over the keys that a query of `layer` sees: on average those of half a sequence, or no more than a
    /// window.
    fn mean(&self, layer: &Layer) -> f64 {
        self.of((chain(self.tokens) / 2.0).min(chain(layer.keys)))
    }

    /// A sum over the tokens of a step, which is in single precision.
    fn sum_over_tokens(&self, tokens: usize) -> f64 {
        match self.stored {
            Format::Fp32 => chain(tokens),
            Format::Bf16 | Format::Fp16 => 0.0,
        }
    }

    /// Within a dot product over a head, which bf16 and fp16 runs do not store.
    fn score(&self) -> f64 {
        match self.stored {
            Format::Fp32 => self.product(self.model.head_dim),
            Format::Bf16 | Format::Fp16 => 0.0,
        }
    }

    /// The product of gradients of logits with the output matrix: once the label's term is in, each step rounds.
    fn vocabulary(&self) -> f64 {
        self.of(chain(self.model.vocabulary) + 3.0)
    }

    /// The factor by which errors in gradients of probabilities grow where the softmax subtracts their mean over the t
    /// keys that a query sees: of t shares, t - 1 are left. A query that sees one key has neither.
    fn subtraction(&self, layer: &Layer) -> f64 {
        let seen = || (2..=self.tokens).map(|place| place.min(layer.keys)).filter(|keys| *keys > 1);
        let sum = |power: i32| seen().map(|keys| (keys as f64).powi(-power)).sum::<f64>();
        let left = sum(1) - sum(2);
        if left > 0.0 { sum(1) / left } else { 1.0 }
    }
}

/// A layer after the forward pass.
struct Passed {
    layer: Layer,
    /// Roundings of inputs of attention and of the feed-forward block.
    normed: [f64; 2],
    /// Of queries.
    query: f64,
    /// Of values.
    value: f64,
    /// Of their means.
    mean: f64,
    /// Of the activation's inputs and outputs.
    input: f64,
    output: f64,
    /// Of the blocks' sums, in front of norms after them, where tokens count by the squares of their gradients.
    sums: [f64; 2],
    /// Mean square of each branch relative to the stream that it is added to.
    shares: [f64; 2],
}

impl Passed {
    fn kinked(&self, model: &ModelSpec) -> KinkedLayer {
        let [attention, feed_forward] = self.shares;
        let [of_attention, of_feed_forward] = match model.blocks {
            Blocks::Parallel => [1.0 + feed_forward + attention; 2],
            Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
                [1.0 + attention, 1.0 + feed_forward]
            }
        };
        let Layer { width, keys, output_variance, .. } = self.layer;
        KinkedLayer {
            input: self.input,
            width,
            keys,
            passed: feed_forward / of_feed_forward,
            passed_attention: attention / of_attention,
            lengths: SumLengths::of(model, width, output_variance),
        }
    }
}

/// Roundings of all layers, and of the stream after the last one.
fn forward(cost: &Cost<'_>, initial: &Initial) -> (Vec<Passed>, f64) {
    let model = cost.model;
    let (mut size, mut stream) = (initial.stream, 0.0);
    let mut passed = Vec::new();
    for layer in &initial.layers {
        let normed = match model.blocks {
            Blocks::PostNorm => stream,
            Blocks::Sequential | Blocks::Parallel | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
                stream + if stream > 0.0 { cost.norm() } else { cost.of(0.0) }
            }
        };
        let query = normed + cost.product(model.hidden) + if model.qk_norm == QkNorm::Off { 0.0 } else { 2.0 };
        let value = normed + cost.product(model.hidden);
        let mean = value + layer.score * (2.0 * query + cost.product(model.head_dim)) + cost.mean(layer);
        let short = cost.short_sums(layer);
        let attention = short[0].mean * (mean + cost.product(model.query_width()) + 2.0);
        let feed_forward = |normed: f64| {
            let input = normed + cost.product(model.hidden);
            let factors = model.activation.inputs_per_output() as f64;
            let output = factors * input + cost.activation();
            (input, output, short[1].mean * (output + cost.product(layer.width) + 2.0))
        };
        let after = |sum: f64| if has_norms_after(model.blocks) { sum + cost.norm() } else { sum };
        // DeepNorm's stream is a norm's output: it has the mean square of its weight.
        let weighted = stream_weight(model.blocks).map(|alpha| alpha * alpha);
        let stream_size = |size: f64| weighted.unwrap_or(size);
        let first = stream_size(size);
        let add = |(size, roundings): (f64, f64), (added, of_added): (f64, f64)| {
            (size * roundings + added * of_added) / (size + added) + 1.0
        };
        let kept = |stream: f64, normed: f64| if weighted.is_some() { normed } else { stream };
        match model.blocks {
            Blocks::Parallel => {
                let (input, output, added) = feed_forward(normed);
                let sum = size + layer.attention + layer.feed_forward;
                let shares = [layer.attention / size, layer.feed_forward / size];
                let (normed, sums) = ([normed; 2], [attention, added]);
                passed.push(Passed { layer: *layer, normed, query, value, mean, input, output, sums, shares });
                stream = (size * stream + layer.attention * attention + layer.feed_forward * added) / sum + 1.0;
                size = sum;
            }
            Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
                let middle = add((first, kept(stream, normed)), (layer.attention, after(attention)));
                let second = stream_size(first + layer.attention);
                let normed_again = if model.blocks == Blocks::PostNorm { middle } else { middle + cost.norm() };
                let (input, output, added) = feed_forward(normed_again);
                let shares = [layer.attention / first, layer.feed_forward / second];
                let sums = [short[0].spread * attention, short[1].spread * added];
                let normed = [normed, normed_again];
                passed.push(Passed { layer: *layer, normed, query, value, mean, input, output, sums, shares });
                stream = add((second, kept(middle, normed_again)), (layer.feed_forward, after(added)));
                size = second + layer.feed_forward;
            }
        }
    }
    (passed, stream)
}

/// Roundings of the gradient of `layer`'s input, from those of its `output`; those of its parameters go to `roundings`.
fn backward(cost: &Cost<'_>, layer: &Passed, of_output: f64, sum: f64, roundings: &mut Roundings) -> f64 {
    let model = cost.model;
    let gated = model.activation.inputs_per_output() == 2;
    let [of_attention, of_feed_forward] = layer.normed;
    let [attention_share, feed_forward_share] = layer.shares;
    // A norm after a block passes its output's gradient, from which its input takes a part away.
    let before_norm = |of: f64, sum: f64| if has_norms_after(model.blocks) { of + cost.norm() + 0.5 * sum } else { of };
    // Where no norm is before a block, none has read its input.
    let of_norm = |read: f64| if model.blocks == Blocks::PostNorm { 0.0 } else { 0.5 * read };
    // The feed-forward block.
    let down = before_norm(of_output, layer.sums[1]) + 1.0;
    let factor = if gated { layer.input } else { 0.5 * layer.layer.input.min(1.0) * layer.input };
    let up = down + cost.product(model.hidden) + factor + cost.of(3.0);
    let through = up + cost.product(layer.layer.width * if gated { 2 } else { 1 }) + 1.0 + of_norm(of_feed_forward);
    let between = match model.blocks {
        Blocks::Parallel => of_output,
        Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
            (of_output + feed_forward_share * through) / (1.0 + feed_forward_share) + 1.0
        }
    };
    // Attention.
    let score = layer.layer.score;
    let of_sum = before_norm(between, layer.sums[0]);
    let output = of_sum + cost.product(model.hidden) + 1.0;
    let mean = cost.mean(&layer.layer);
    let value = output + 2.0 * score * layer.query + mean;
    let probability = cost.subtraction(&layer.layer) * (output + layer.value + cost.score() + cost.of(5.0));
    let query = probability + layer.query + mean + 2.0 * score * layer.query;
    // A norm takes one of its directions away.
    let query = match model.qk_norm.width(model.head_dim, model.num_kv_heads) {
        None => query,
        Some(dims) => (query + layer.query) * dims as f64 / (dims as f64 - 1.0).max(1.0),
    };
    let through_attention = value + cost.product(3 * model.query_width()) + 1.0 + of_norm(of_attention);
    let matrices = [layer.output + down, of_feed_forward + up, layer.mean + of_sum, of_attention + value];
    let [of_attention_sum, of_feed_forward_sum] = layer.sums;
    let norms = [
        through + of_feed_forward,
        through_attention + of_attention,
        before_norm(of_output, of_feed_forward_sum),
        before_norm(between, of_attention_sum),
    ];
    let largest = |into: &mut f64, all: &[f64]| *into = all.iter().map(|one| one + sum).fold(*into, f64::max);
    largest(&mut roundings.matrix, &matrices);
    largest(&mut roundings.query_key, &[of_attention + query]);
    largest(&mut roundings.vector, &norms);
    let added = attention_share * through_attention;
    match model.blocks {
        Blocks::Parallel => {
            let all = 1.0 + feed_forward_share + attention_share;
            (of_output + feed_forward_share * through + added) / all + 1.0
        }
        Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
            (between + added) / (1.0 + attention_share) + 1.0
        }
    }
}
