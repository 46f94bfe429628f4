//! Steps of fp16 runs that overflow, and where two runs skip different ones (`docs/numerics.md`, "Loss scaling").

use train::{LossScalingReport, UpdateOutcome};

use crate::distance::Outcome;

/// Whether a run has skipped each of its steps: the first weights have the same bits under every layout.
pub(crate) fn nothing_learned(outcome: &Outcome) -> bool {
    !outcome.scaling.is_empty() && outcome.scaling.iter().all(|report| update(report) == Some(UpdateOutcome::Skipped))
}

/// The first step that updates weights, counted from 0.
pub(crate) fn first_update(outcome: &Outcome) -> usize {
    let is_update =
        |report: &Option<LossScalingReport>| update(report).is_none_or(|update| update == UpdateOutcome::Updated);
    outcome.scaling.iter().position(is_update).unwrap_or(0)
}

/// The first step, counted from 0, that one of the two skips and the other does not. Both have computed its loss from
/// the same updates; from there on they are different runs.
pub fn parted_at([first, second]: [&Outcome; 2]) -> Option<usize> {
    first.scaling.iter().zip(&second.scaling).position(|(a, b)| update(a) != update(b))
}

/// Why nothing is promised from step `parted` on, counted from 0.
pub(crate) fn parted(parted: usize) -> String {
    format!(
        "step {} overflowed fp16 in one of the two alone, so their updates differ and nothing is promised from there \
         on; use a lower train.initial_loss_scale for both",
        parted + 1
    )
}

fn update(report: &Option<LossScalingReport>) -> Option<UpdateOutcome> {
    report.map(|report| report.update)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(updates: &[UpdateOutcome]) -> Outcome {
        let report =
            |update: &UpdateOutcome| Some(LossScalingReport { factor: 1.0, update: *update, skipped_steps: 0 });
        Outcome { scaling: updates.iter().map(report).collect(), ..Outcome::default() }
    }

    #[test]
    fn a_step_that_one_run_skips_is_named() {
        let [updated, skipped] = [UpdateOutcome::Updated, UpdateOutcome::Skipped];
        let (all, one) = (outcome(&[updated, updated]), outcome(&[updated, skipped]));
        assert_eq!(
            [parted_at([&all, &one]), parted_at([&one, &all]), parted_at([&one, &one])],
            [Some(1), Some(1), None]
        );
        assert_eq!(parted_at([&Outcome::default(), &Outcome::default()]), None);
        assert_eq!(
            parted(1),
            "step 2 overflowed fp16 in one of the two alone, so their updates differ and nothing is promised from there \
             on; use a lower train.initial_loss_scale for both"
        );
        let late = outcome(&[skipped, updated]);
        assert_eq!([&all, &late, &Outcome::default()].map(first_update), [0, 1, 0]);
        assert!(nothing_learned(&outcome(&[skipped, skipped])) && !nothing_learned(&late));
    }
}
