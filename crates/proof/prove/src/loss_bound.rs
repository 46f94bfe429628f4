//! How far the losses of a step may be apart (`docs/numerics.md`, "Losses").

use std::f64::consts::PI;

use crate::bounds::SINGLE;

/// Root mean square errors of the loss of one step, as absolute numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepLoss {
    /// By roundings of the forward pass.
    pub(crate) logits: f64,
    /// By the distance of the weights, for a gradient of norm 1.
    pub(crate) moved: f64,
}

/// How far the losses of each step may be apart.
#[derive(Clone, Debug, PartialEq)]
pub struct LossBound {
    steps: Vec<StepLoss>,
    deviations: f64,
}

impl LossBound {
    /// Losses with these errors, each of which one pair of runs in 1 / `chance` exceeds.
    pub(crate) fn new(steps: Vec<StepLoss>, chance: f64) -> LossBound {
        LossBound { steps, deviations: deviations(chance) }
    }

    /// Relative to `loss`, that of `step`, counted from 0, whose gradient has this norm before clipping. Of a step that
    /// the bound does not know nothing is promised but last places.
    pub fn of_step(&self, step: usize, norm: f64, loss: f64) -> f64 {
        let errors = self.steps.get(step).copied().unwrap_or(StepLoss { logits: 0.0, moved: 0.0 });
        let error = self.deviations * errors.logits.hypot(errors.moved * norm);
        // The reported number is rounded to single precision, in both runs.
        let reported = 4.5 * SINGLE;
        if loss == 0.0 { reported } else { reported + error / loss.abs() }
    }
}

/// Standard deviations that a normal number exceeds, on either side, with a probability of `chance`.
fn deviations(chance: f64) -> f64 {
    // The tail is below exp(-x^2 / 2) sqrt(2 / pi) / x, and close to it where x is above 3.
    let mut guess = 4.0;
    for _ in 0..32 {
        guess = (2.0 * ((2.0 / PI).sqrt() / (chance * guess)).ln()).max(1.0).sqrt();
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_those_of_a_table_of_normal_numbers() {
        for (chance, expected) in [(1e-3, 3.29), (1e-5, 4.42), (5e-7, 5.03)] {
            assert!((deviations(chance) - expected).abs() < 0.06, "{chance}: {}", deviations(chance));
        }
    }

    #[test]
    fn a_bound_is_absolute_but_for_last_places() {
        let step = |logits, moved| StepLoss { logits, moved };
        let bound = LossBound::new(vec![step(3e-4, 0.0), step(3e-4, 2e-4)], 1e-5);
        let error = |step, norm, loss| (bound.of_step(step, norm, loss) - 4.5 * SINGLE) * loss / bound.deviations;
        assert!((error(0, 9.0, 4.0) - 3e-4).abs() < 1e-12 && (error(0, 9.0, 0.1) - 3e-4).abs() < 1e-12);
        assert!((error(1, 2.0, 4.0) - 5e-4).abs() < 1e-12, "independent errors add by squares");
        assert_eq!(bound.of_step(2, 1.0, 4.0), 4.5 * SINGLE);
    }
}
