//! The scalars of an AdamW update.

/// Scalars of an AdamW update at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWUpdate {
    /// Learning rate of this step.
    pub learning_rate: f32,
    /// Decoupled decay: `p *= 1 - learning_rate * weight_decay`.
    pub weight_decay: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the denominator.
    pub epsilon: f32,
    /// Update number, counted from 1, for the bias corrections.
    pub update: u32,
}

/// The factors of an update of one element, with `g = grad * coefficient`:
/// `m = beta1_kept m + beta1_new g`, `v = beta2_kept v + beta2_new g^2`,
/// `p = keep p + step m / (root_correction sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWFactors {
    /// `1 - learning_rate * weight_decay`
    pub keep: f32,
    /// Of the first moment.
    pub beta1_kept: f32,
    /// `1 - beta1`
    pub beta1_new: f32,
    /// Of the second moment.
    pub beta2_kept: f32,
    /// `1 - beta2`
    pub beta2_new: f32,
    /// `-learning_rate / (1 - beta1^update)`
    pub step: f32,
    /// `1 / sqrt(1 - beta2^update)`
    pub root_correction: f32,
    /// Added to the denominator.
    pub epsilon: f32,
}

impl AdamWUpdate {
    /// The factors of an element's update, computed in f64 and rounded once: the same bits on every device.
    ///
    /// Panics for update 0, as updates are counted from 1.
    pub fn factors(self) -> AdamWFactors {
        let AdamWUpdate { learning_rate, weight_decay, beta1, beta2, epsilon, update } = self;
        assert!(update > 0, "updates are counted from 1");
        let [rate, decay, beta1, beta2] = [learning_rate, weight_decay, beta1, beta2].map(f64::from);
        AdamWFactors {
            keep: (1.0 - rate * decay) as f32,
            beta1_kept: beta1 as f32,
            beta1_new: (1.0 - beta1) as f32,
            beta2_kept: beta2 as f32,
            beta2_new: (1.0 - beta2) as f32,
            step: (-rate / (1.0 - power(beta1, update))) as f32,
            root_correction: (1.0 / (1.0 - power(beta2, update)).sqrt()) as f32,
            epsilon,
        }
    }
}

/// `base^exponent` by squaring: the same bits everywhere, unlike the library's.
fn power(base: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_update_is_corrected_for_moments_that_start_at_zero() {
        let update =
            AdamWUpdate { learning_rate: 0.5, weight_decay: 0.25, beta1: 0.75, beta2: 0.75, epsilon: 1e-8, update: 1 };
        let expected = AdamWFactors {
            keep: 0.875,
            beta1_kept: 0.75,
            beta1_new: 0.25,
            beta2_kept: 0.75,
            beta2_new: 0.25,
            step: -2.0,
            root_correction: 2.0,
            epsilon: 1e-8,
        };
        assert_eq!(update.factors(), expected);
        assert_eq!(AdamWUpdate { update: 2, ..update }.factors().step, (-0.5 / (1.0 - 0.5625)) as f32);
    }
}
