//! How many tokens count in each step of two runs.

use config::TrainSpec;

use crate::distance::Outcome;
use crate::skipped_steps::first_update;

/// Valid tokens of each step, no less than one: errors of the others reach neither a loss nor a gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidTokens {
    of_steps: Vec<f64>,
    first: f64,
}

impl ValidTokens {
    /// Of `steps` steps of `train` where every token has a label.
    pub fn all(train: &TrainSpec, steps: u32) -> ValidTokens {
        let of_step = |step: u32| (train.batches().at(step).sequences * train.sequence_length).max(1) as f64;
        let of_steps: Vec<f64> = (0..steps).map(of_step).collect();
        ValidTokens { first: of_steps.first().copied().unwrap_or(1.0), of_steps }
    }

    /// The valid tokens of `outcomes` of `steps` steps of `train`. Where an outcome has no count, every token counts.
    pub fn of(train: &TrainSpec, steps: u32, outcomes: [&Outcome; 2]) -> ValidTokens {
        let ValidTokens { mut of_steps, .. } = ValidTokens::all(train, steps);
        for outcome in outcomes {
            let counted = of_steps.iter_mut().zip(&outcome.valid_tokens);
            counted.for_each(|(of_step, counted)| *of_step = of_step.min((*counted).max(1) as f64));
        }
        let first = of_steps.get(first_update(outcomes[0])).or(of_steps.first()).copied().unwrap_or(1.0);
        ValidTokens { first, of_steps }
    }

    /// The number of steps.
    pub(crate) fn steps(&self) -> u32 {
        u32::try_from(self.of_steps.len()).unwrap_or(u32::MAX)
    }

    /// The valid tokens of the step of the first gradients.
    pub(crate) fn first(&self) -> f64 {
        self.first
    }

    /// The valid tokens of `step`, counted from 0.
    pub(crate) fn of_step(&self, step: u32) -> f64 {
        self.of_steps.get(step as usize).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use testkit::models::proof_training;
    use train::{LossScalingReport, UpdateOutcome};

    use super::*;

    #[test]
    fn the_smaller_count_holds_and_the_first_gradient_is_that_of_the_first_update() {
        let train = TrainSpec { global_batch: 2, sequence_length: 4, ..proof_training() };
        let all = ValidTokens::all(&train, 3);
        assert_eq!((all.steps(), all.first(), all.of_step(2)), (3, 8.0, 8.0));
        let report = |update| Some(LossScalingReport { factor: 1.0, update, skipped_steps: 0 });
        let outcome = |valid: [u64; 3]| Outcome {
            valid_tokens: valid.to_vec(),
            scaling: [UpdateOutcome::Skipped, UpdateOutcome::Updated, UpdateOutcome::Updated].map(report).to_vec(),
            ..Outcome::default()
        };
        let [first, second] = [[8, 3, 5], [8, 6, 0]].map(outcome);
        let counted = ValidTokens::of(&train, 3, [&first, &second]);
        assert_eq!([0, 1, 2].map(|step| counted.of_step(step)), [8.0, 3.0, 1.0]);
        assert_eq!(counted.first(), 3.0);
        let silent = Outcome::default();
        assert_eq!(ValidTokens::of(&train, 3, [&silent, &silent]), all);
    }
}
