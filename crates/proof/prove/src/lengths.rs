//! Lengths of vectors, which norms divide by, and how much they vary from token to token (`docs/numerics.md`,
//! "Lengths").

use config::{Blocks, ModelSpec};

/// Relative variance of a normal number's square.
pub(crate) const OF_SQUARE: f64 = 2.0;
/// The shortest vectors are left out that one in ten sets of as many tokens has.
const SHORTEST: f64 = 0.1;
/// Steps of the integral over the logarithm of a square, in deviations, and its ends.
const STEP: f64 = 0.05;
const ENDS: [f64; 2] = [-40.0, 8.0];

/// The inverse squares of the lengths of many tokens' vectors, whose squares have the mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InverseSquares {
    /// Their mean.
    pub(crate) mean: f64,
    /// Their mean square over the square of their mean.
    pub(crate) spread: f64,
}

impl InverseSquares {
    /// The inverse squares of vectors of one length.
    pub(crate) const EQUAL: InverseSquares = InverseSquares { mean: 1.0, spread: 1.0 };

    /// The inverse squares of `tokens` vectors whose squares have this relative `variance`: 2 / n for n independent
    /// normal numbers.
    ///
    /// The square over its mean is a Gamma variable of shape 1 / `variance`. Of shapes up to 2 the inverse has no mean
    /// square, so the integral ends at the shortest vector that as many tokens are likely to have.
    pub(crate) fn of(variance: f64, tokens: f64) -> InverseSquares {
        let (shape, deviation, tokens) = (1.0 / variance, variance.sqrt(), tokens.max(1.0));
        let steps = ((ENDS[1] - ENDS[0]) / STEP) as usize;
        let logarithms = || (0..steps).map(|step| deviation * (ENDS[0] + STEP * step as f64));
        let density = |logarithm: f64| (shape * (logarithm - logarithm.exp() + 1.0)).exp();
        let whole: f64 = logarithms().map(density).sum();
        let (mut within, mut sums) = (0.0, [0.0; 3]);
        for logarithm in logarithms() {
            within += density(logarithm);
            if within * tokens > SHORTEST * whole {
                let inverse = (-logarithm).exp();
                let mut term = density(logarithm);
                for sum in &mut sums {
                    *sum += term;
                    term *= inverse;
                }
            }
        }
        let [all, first, second] = sums;
        InverseSquares { mean: first / all, spread: (second * all / (first * first)).clamp(1.0, tokens) }
    }
}

/// Relative variances of the squares of the lengths of a layer's sums, which norms after its blocks divide by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumLengths {
    /// Of attention's.
    pub attention: f64,
    /// Of the feed-forward block's.
    pub feed_forward: f64,
}

impl SumLengths {
    /// The variances of a layer of `model` with `width` inputs of its activation, whose outputs' squares have the
    /// relative variance `of_output`. A sum has the directions of its map, and of a token all heads of a group have one
    /// value.
    pub(crate) fn of(model: &ModelSpec, width: usize, of_output: f64) -> SumLengths {
        let values = model.num_kv_heads * model.head_dim;
        let of_map = OF_SQUARE / model.hidden.max(1) as f64;
        SumLengths {
            attention: of_map + OF_SQUARE / values.max(1) as f64,
            feed_forward: of_map + of_output / width.max(1) as f64,
        }
    }
}

/// Whether blocks end in norms.
pub(crate) fn has_norms_after(blocks: Blocks) -> bool {
    match blocks {
        Blocks::PostNorm | Blocks::Sandwich => true,
        Blocks::Sequential | Blocks::Parallel | Blocks::DeepNorm { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use philox::philox4x32_10;

    use super::*;

    /// Normal numbers by the method of Box and Muller.
    fn normal(index: u32) -> f64 {
        let [first, second, ..] =
            philox4x32_10([index, 0, 0, 0], [7, 0]).map(|word| (f64::from(word) + 0.5) / 4_294_967_296.0);
        (-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).cos()
    }

    /// The mean of the inverse squares of drawn vectors of `values` numbers, and the mean spread of sets of `tokens`.
    fn drawn(values: u32, tokens: u32) -> [f64; 2] {
        const SETS: u32 = 1000;
        let inverse = |vector: u32| {
            let square: f64 = (0..values).map(|index| normal(vector * values + index).powi(2)).sum();
            f64::from(values) / square
        };
        let (mut mean, mut spread) = (0.0, 0.0);
        for set in 0..SETS {
            let all: Vec<f64> = (0..tokens).map(|token| inverse(set * tokens + token)).collect();
            let of = |power: i32| all.iter().map(|inverse| inverse.powi(power)).sum::<f64>() / f64::from(tokens);
            mean += of(1) / f64::from(SETS);
            spread += of(2) / of(1).powi(2) / f64::from(SETS);
        }
        [mean, spread]
    }

    /// Of 5 values, a few short vectors out of thousands decide the mean, and of few tokens the integral leaves out
    /// more of them; all others agree within hundredths.
    #[test]
    fn inverse_squares_are_those_of_drawn_normal_vectors() {
        for (values, tokens, tolerance) in [(5, 64, 0.15), (8, 64, 0.06), (16, 64, 0.02), (32, 16, 0.02), (8, 8, 0.07)]
        {
            let [mean, spread] = drawn(values, tokens);
            let found = InverseSquares::of(OF_SQUARE / f64::from(values), f64::from(tokens));
            for (found, drawn) in [(found.mean, mean), (found.spread, spread)] {
                assert!((found / drawn - 1.0).abs() < tolerance, "{values} of {tokens}: {found} {drawn}");
            }
        }
        // Of many values and tokens: n / (n - 2) and (n - 2) / (n - 4).
        let found = InverseSquares::of(OF_SQUARE / 64.0, 1e6);
        assert!((found.mean - 64.0 / 62.0).abs() < 1e-3 && (found.spread - 62.0 / 60.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn fewer_values_and_more_tokens_spread_more() {
        let of = |values: f64, tokens| InverseSquares::of(OF_SQUARE / values, tokens);
        let all = [512.0, 64.0, 16.0, 8.0, 4.0, 2.0, 1.0].map(|values| of(values, 64.0));
        assert!(all.windows(2).all(|pair| pair[0].mean < pair[1].mean && pair[0].spread <= pair[1].spread), "{all:?}");
        let all = [1.0, 4.0, 64.0, 4096.0].map(|tokens| of(6.0, tokens));
        assert!(all.windows(2).all(|pair| pair[0].mean <= pair[1].mean && pair[0].spread <= pair[1].spread), "{all:?}");
        assert_eq!((of(1.0, 1.0).spread, of(1.0, 3.0).spread), (1.0, 3.0), "one token is the least");
    }
}
