//! From logits to a token: temperature, the most probable few, a random number that depends on seed and place alone.

use philox::{half_open_f64, philox4x32_10};

/// How the next token is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 always takes the most probable token.
    pub temperature: f32,
    /// The number of most probable tokens that are drawn from.
    pub top_k: Option<usize>,
    /// Only the most probable tokens that together have at least this probability are drawn from; 1 is all.
    pub top_p: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Logits from which no token can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "the logit of token {token} at position {position} is {logit}, so no token can be drawn: the weights or the activations are not finite. \
     Weights of an earlier step, or train.precision = \"fp32\", may help"
)]
pub struct NoDistribution {
    /// Place of the token that was to be drawn.
    pub position: u64,
    /// The first token whose logit is at fault.
    pub token: usize,
    pub logit: f32,
}

/// Separates these random numbers from others of the same seed.
const PURPOSE: u32 = 0x7361_6d70;

impl Sampling {
    /// The token at `position` of a text, given the logits of the token before. Ties go to the smaller number.
    ///
    /// # Errors
    /// A logit that is not a number or infinitely large, compared with which nothing is more or less probable.
    pub fn draw(&self, logits: &[f32], position: u64) -> Result<usize, NoDistribution> {
        if let Some(token) = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
            return Err(NoDistribution { position, token, logit: logits[token] });
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        if self.temperature == 0.0 {
            return Ok(order.first().copied().unwrap_or(0));
        }
        order.truncate(self.top_k.unwrap_or(usize::MAX).max(1));
        let largest = order.first().map_or(0.0, |index| f64::from(logits[*index]));
        let weight = |index: &usize| ((f64::from(logits[*index]) - largest) / f64::from(self.temperature)).exp();
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        weights.truncate(self.nucleus(&weights));
        let uniform = self.uniform(position) * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let drawn = weights.iter().position(|weight| {
            sum += weight;
            uniform < sum
        });
        // Rounding can leave the last sum a hair below the total.
        Ok(order.get(drawn.unwrap_or(weights.len().saturating_sub(1))).copied().unwrap_or(0))
    }

    /// How many of the descending `weights` have the share [`Sampling::top_p`] of their sum; at least 1.
    fn nucleus(&self, weights: &[f64]) -> usize {
        let enough = f64::from(self.top_p) * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let last = weights.iter().position(|weight| {
            sum += weight;
            sum >= enough
        });
        last.map_or(weights.len(), |last| last + 1)
    }

    /// In `[0, 1)`.
    fn uniform(&self, position: u64) -> f64 {
        let counter = [position as u32, (position >> 32) as u32, 0, PURPOSE];
        let words = philox4x32_10(counter, [self.seed as u32, (self.seed >> 32) as u32]);
        half_open_f64(words[0], words[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, 2.0];
    const PLAIN: Sampling = Sampling { temperature: 1.0, top_k: None, top_p: 1.0, seed: 3 };

    fn counts(sampling: Sampling) -> [usize; 4] {
        let mut counts = [0; 4];
        (0..10_000).for_each(|position| counts[sampling.draw(&LOGITS, position).expect("finite")] += 1);
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        assert_eq!(counts(Sampling { temperature: 0.0, ..PLAIN }), [0, 10_000, 0, 0]);
    }

    #[test]
    fn frequencies_are_the_softmax() {
        let weights = LOGITS.map(|logit| f64::from(logit).exp());
        let sum: f64 = weights.iter().sum();
        for (count, weight) in counts(PLAIN).iter().zip(weights) {
            // Five standard deviations of a binomial count.
            let (mean, bound) = (10_000.0 * weight / sum, 5.0 * (10_000.0 * weight / sum).sqrt());
            assert!((*count as f64 - mean).abs() < bound, "{count} instead of {mean}");
        }
    }

    #[test]
    fn the_improbable_are_left_out() {
        let of = |sampling| counts(sampling).map(|count| count > 0);
        assert_eq!(of(Sampling { top_k: Some(3), ..PLAIN }), [false, true, true, true]);
        assert_eq!(of(Sampling { top_k: Some(1), ..PLAIN }), [false, true, false, false]);
        // The two of 0.4 together have less than 0.85, with the third they have 0.95.
        assert_eq!(of(Sampling { top_p: 0.85, ..PLAIN }), [false, true, true, true]);
        assert_eq!(of(Sampling { top_p: 0.5, ..PLAIN }), [false, true, false, true]);
        assert_eq!(of(Sampling { top_p: 0.0, ..PLAIN }), [false, true, false, false]);
    }

    #[test]
    fn what_is_no_number_is_refused_by_name() {
        for temperature in [0.0, 1.0] {
            for wrong in [f32::NAN, f32::INFINITY] {
                let drawn = Sampling { temperature, ..PLAIN }.draw(&[0.0, 1.0, wrong, -1.0], 7);
                let said = drawn.expect_err("no distribution").to_string();
                assert!(
                    said.starts_with(&format!("the logit of token 2 at position 7 is {wrong}, so no token")),
                    "{said}"
                );
            }
        }
        // A token without probability is legal.
        assert_eq!(PLAIN.draw(&[f32::NEG_INFINITY, 0.0], 7), Ok(1));
    }

    #[test]
    fn another_seed_draws_another_text() {
        let text = |seed| -> Vec<usize> {
            (0..50).map(|position| Sampling { seed, ..PLAIN }.draw(&LOGITS, position).expect("finite")).collect()
        };
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }
}
