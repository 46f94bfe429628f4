//! From a step's integer sums to the factor of all gradients.

use device::COUNT_WORD;

use crate::fixed_point::to_f64;

/// The norm and the factors of a step, computed in f64 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSums {
    /// Factor of all gradients: `nominal_tokens / valid tokens / loss_scale`, times `clip_norm / norm` where the norm
    /// exceeds it. 0 without valid tokens or if anything was not finite.
    pub coefficient: f32,
    /// Global norm of the gradient of the mean loss, before clipping; NaN if a gradient was not finite, or so large
    /// that 4,096 of them in a row have a norm above 1e24.
    pub norm: f32,
    /// Mean loss over the valid tokens, 0 without; NaN if a loss was not finite.
    pub mean_loss: f32,
    /// Whether every gradient and every loss was finite.
    pub all_finite: bool,
}

/// The scale that gradients have, and the largest norm that they may have.
#[derive(Clone, Copy, Debug)]
pub struct Factors {
    /// The backward pass started from `loss_scale / nominal_tokens`.
    pub nominal_tokens: f64,
    /// A power of two that is in the gradients and not in the sums of their squares.
    pub loss_scale: f32,
    /// Largest norm of the gradient of the mean loss.
    pub clip_norm: Option<f32>,
}

/// Reads the sums over all ranks: squares of gradients (but for the loss scale) that were scaled by `1 /
/// nominal_tokens`, and losses with the number of valid tokens.
pub fn clip_coefficient(norm_sums: &[i64], loss_sums: &[i64], factors: Factors) -> StepSums {
    let Factors { nominal_tokens, loss_scale, clip_norm } = factors;
    let valid = loss_sums[COUNT_WORD];
    let scale = if valid > 0 { nominal_tokens / valid as f64 } else { 0.0 };
    let norm = to_f64(norm_sums).sqrt() * scale;
    let loss = to_f64(loss_sums);
    let mean_loss = if valid > 0 { loss / valid as f64 } else { loss * 0.0 };
    let all_finite = norm.is_finite() && mean_loss.is_finite();
    let clipped = match clip_norm {
        Some(clip_norm) if norm > f64::from(clip_norm) => scale * f64::from(clip_norm) / norm,
        Some(_) | None => scale,
    };
    StepSums {
        coefficient: if all_finite { (clipped / f64::from(loss_scale)) as f32 } else { 0.0 },
        norm: norm as f32,
        mean_loss: mean_loss as f32,
        all_finite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed_point::add;
    use device::SUM_WORDS;

    fn sums(value: f64, count: i64) -> [i64; SUM_WORDS] {
        let mut words = [0; SUM_WORDS];
        add(&mut words, value);
        words[COUNT_WORD] = count;
        words
    }

    fn factors(nominal_tokens: f64, clip_norm: Option<f32>) -> Factors {
        Factors { nominal_tokens, loss_scale: 1.0, clip_norm }
    }

    #[test]
    fn the_loss_scale_leaves_with_the_coefficient() {
        let scaled = Factors { loss_scale: 1024.0, ..factors(20.0, Some(1.5)) };
        let step = clip_coefficient(&sums(9.0, 0), &sums(30.0, 10), scaled);
        assert_eq!(step, StepSums { coefficient: 0.5 / 1024.0, norm: 6.0, mean_loss: 3.0, all_finite: true });
    }

    #[test]
    fn gradients_are_scaled_by_tokens_and_clipped() {
        let free = clip_coefficient(&sums(9.0, 0), &sums(30.0, 10), factors(20.0, None));
        assert_eq!(free, StepSums { coefficient: 2.0, norm: 6.0, mean_loss: 3.0, all_finite: true });
        let clipped = clip_coefficient(&sums(9.0, 0), &sums(30.0, 10), factors(20.0, Some(1.5)));
        assert_eq!(clipped.coefficient, 0.5);
        let below = clip_coefficient(&sums(9.0, 0), &sums(30.0, 10), factors(20.0, Some(6.0)));
        assert_eq!(below.coefficient, 2.0);
    }

    #[test]
    fn exploded_gradients_are_clipped() {
        let exploded = clip_coefficient(&sums(1e24, 0), &sums(30.0, 10), factors(20.0, Some(1.0)));
        assert_eq!((exploded.norm, exploded.all_finite), (2e12, true));
        assert_eq!(exploded.coefficient, 1e-12);
    }

    #[test]
    fn nothing_valid_gives_zero_and_nothing_finite_says_so() {
        let empty = clip_coefficient(&sums(0.0, 0), &sums(0.0, 0), factors(20.0, Some(1.0)));
        assert_eq!(empty, StepSums { coefficient: 0.0, norm: 0.0, mean_loss: 0.0, all_finite: true });
        let broken = clip_coefficient(&sums(f64::NAN, 0), &sums(1.0, 1), factors(1.0, None));
        assert!(!broken.all_finite && broken.coefficient == 0.0 && broken.norm.is_nan());
        let broken = clip_coefficient(&sums(1.0, 0), &sums(f64::INFINITY, 1), factors(1.0, None));
        assert!(!broken.all_finite && broken.coefficient == 0.0 && broken.mean_loss.is_nan());
    }
}
