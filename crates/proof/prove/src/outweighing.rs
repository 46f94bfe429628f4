//! How few tokens outweigh the others in a gradient where norms after blocks divide it by lengths that vary
//! (`docs/numerics.md`, "Lengths").

use config::ModelSpec;

use crate::lengths::{InverseSquares, OF_SQUARE, has_norms_after};
use crate::roundings::KinkedLayer;

/// The factor by which fewer tokens than `tokens` make up the gradient in front of the first of `layers` has: the mean
/// square of the squares of tokens' gradients over the square of their mean, in sequences of `places` tokens. 1 where
/// no norms follow blocks.
pub(crate) fn spread_of_gradients(model: &ModelSpec, layers: &[KinkedLayer], tokens: f64, places: usize) -> f64 {
    if !has_norms_after(model.blocks) {
        return 1.0;
    }
    let of_stream = OF_SQUARE / model.hidden.max(1) as f64;
    // The block's own norm, its map's directions, and the norm before it, or the stream that it reads.
    let of_block = |variance: f64| {
        let [sum, read] = [variance, of_stream].map(|variance| InverseSquares::of(variance, tokens).spread);
        sum * (1.0 + variance) * read
    };
    // The rest of the stream's gradient goes past the block.
    let passed = |share: f64, spread: f64| 1.0 + share * (spread - 1.0);
    let of_layer = |layer: &KinkedLayer| {
        let attention = of_block(layer.lengths.attention) * spread_of_keys(places, layer.keys);
        passed(layer.passed, of_block(layer.lengths.feed_forward)) * passed(layer.passed_attention, attention)
    };
    // The head's norm is one more.
    let all = (1.0 + of_stream) * layers.iter().map(of_layer).product::<f64>();
    all.clamp(1.0, tokens.max(1.0))
}

/// The same of gradients of keys, where a norm makes means over t keys whole, so that each of them has 1 / t of the
/// square: those of the first places are read by all.
fn spread_of_keys(places: usize, most: usize) -> f64 {
    let most = most.max(1);
    // Of the first n places, for each n.
    let mut sums = vec![0.0];
    sums.extend((1..=places).scan(0.0, |sum, place: usize| {
        *sum += 1.0 / place.min(most) as f64;
        Some(*sum)
    }));
    let of_key = |key: usize| sums[places.min(key + most - 1)] - sums[key - 1];
    let mean = |power: i32| (1..=places).map(|key| of_key(key).powi(power)).sum::<f64>() / places.max(1) as f64;
    let (mean, square) = (mean(1), mean(2));
    if mean > 0.0 { square / (mean * mean) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use config::{Activation, Blocks, QkNorm};
    use testkit::models::{Style, proof_model};

    use super::*;
    use crate::lengths::SumLengths;

    fn model(blocks: Blocks, hidden: usize) -> ModelSpec {
        let proof = proof_model(Style::Gpt2, 4, true);
        let qk_norm = QkNorm::Off;
        ModelSpec {
            activation: Activation::Relu,
            qk_norm,
            hidden,
            head_dim: hidden / 4,
            num_kv_heads: 4,
            blocks,
            ..proof
        }
    }

    fn layers(model: &ModelSpec, number: usize, passed: f64) -> Vec<KinkedLayer> {
        let width = 4 * model.hidden;
        let lengths = SumLengths::of(model, width, 5.0);
        vec![KinkedLayer { input: 6.0, width, keys: 8, passed, passed_attention: passed, lengths }; number]
    }

    #[test]
    fn norms_after_blocks_leave_fewer_tokens_and_other_blocks_all() {
        let of = |blocks, hidden, number, passed| {
            let model = model(blocks, hidden);
            spread_of_gradients(&model, &layers(&model, number, passed), 64.0, 8)
        };
        for blocks in [Blocks::Sequential, Blocks::Parallel, Blocks::DeepNorm { alpha: 2.0 }] {
            assert_eq!(of(blocks, 32, 2, 0.5), 1.0);
        }
        let narrow = of(Blocks::Sandwich, 32, 2, 0.5);
        assert!(of(Blocks::Sandwich, 64, 2, 0.5) < narrow && narrow < of(Blocks::Sandwich, 32, 3, 0.5));
        assert!((of(Blocks::PostNorm, 32, 2, 0.0) - 1.0 - 2.0 / 32.0).abs() < 1e-9, "blocks that nothing passes");
        assert_eq!(of(Blocks::PostNorm, 32, 40, 0.9), 64.0, "at least one token has a gradient");
    }

    /// Eight places: the first is read by 1 + 1 / 2 + ... + 1 / 8 of them, the last by 1 / 8.
    #[test]
    fn first_places_are_read_by_all() {
        assert!((spread_of_keys(8, 8) - 1.66).abs() < 0.01, "{}", spread_of_keys(8, 8));
        assert_eq!((spread_of_keys(1, 1), spread_of_keys(8, 1)), (1.0, 1.0));
        assert!(spread_of_keys(32, 4) < spread_of_keys(32, 32) && spread_of_keys(4096, 4096) < 2.0);
    }
}
