//! The factor of the loss that keeps gradients in the range of fp16, and how it follows overflows.
//!
//! It is a function of the run's precision and of which steps overflowed. That follows from sums over all ranks, so
//! every rank has the same factor and the same counts without exchanging them. After P. Micikevicius et al., "Mixed
//! precision training" (2017), section 3.2, with the hysteresis of Megatron-LM.

use checkpoint::{LossScaleState, RunState};
use config::{LossScaling, Precision};

/// The factor and its history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// How it moves; a run that does not scale has none.
    scaling: Option<LossScaling>,
    factor: f32,
    /// Steps since the factor last changed or a step overflowed.
    finite_steps: u32,
    /// Overflows that are tolerated before the factor is halved.
    tolerated: u32,
    skipped_steps: u32,
}

/// The result of a step's update, by its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// All was finite: the weights were updated.
    Updated,
    /// Something overflowed: nothing was updated, the next step may have another factor.
    Skipped,
    /// Something was not finite, and no factor is left that could help.
    Hopeless,
}

impl LossScale {
    /// Before the first step.
    pub fn new(precision: Precision) -> LossScale {
        let scaling = match precision {
            Precision::Fp32(_) | Precision::Bf16(_) => None,
            Precision::Fp16(_, scaling) => Some(scaling),
        };
        LossScale {
            scaling,
            factor: scaling.map_or(1.0, |scaling| scaling.initial),
            finite_steps: 0,
            tolerated: scaling.map_or(0, |scaling| scaling.hysteresis - 1),
            skipped_steps: 0,
        }
    }

    /// After the steps of `state`, which may have had another precision: steps that were skipped stay skipped, a factor
    /// continues within the limits of this run, and where there was none it begins.
    pub fn resumed(precision: Precision, state: &RunState) -> LossScale {
        let begun = LossScale { skipped_steps: state.skipped_steps, ..LossScale::new(precision) };
        match (begun.scaling, state.loss_scale) {
            (None, _) | (_, None) => begun,
            (Some(scaling), Some(LossScaleState { factor, finite_steps, tolerated })) => LossScale {
                factor: factor.clamp(scaling.minimum, LossScaling::LARGEST),
                finite_steps: finite_steps.min(scaling.window - 1),
                tolerated: tolerated.min(scaling.hysteresis - 1),
                ..begun
            },
        }
    }

    /// The state of the factor that [`LossScale::resumed`] needs; none where the loss is not scaled.
    pub fn state(&self) -> Option<LossScaleState> {
        let LossScale { factor, finite_steps, tolerated, .. } = *self;
        self.is_dynamic().then_some(LossScaleState { factor, finite_steps, tolerated })
    }

    /// The factor of the next step's loss; 1 where it is not scaled.
    pub fn factor(&self) -> f32 {
        self.factor
    }

    /// Steps so far that changed no weight.
    pub fn skipped_steps(&self) -> u32 {
        self.skipped_steps
    }

    /// Whether the loss is scaled at all.
    pub fn is_dynamic(&self) -> bool {
        self.scaling.is_some()
    }

    /// Takes note of a step whose loss and gradients were all finite.
    pub fn after_finite(&mut self) -> UpdateOutcome {
        let Some(scaling) = self.scaling else { return UpdateOutcome::Updated };
        self.finite_steps += 1;
        if self.finite_steps == scaling.window {
            self.factor = (2.0 * self.factor).min(LossScaling::LARGEST);
            self.finite_steps = 0;
            self.tolerated = scaling.hysteresis - 1;
        }
        UpdateOutcome::Updated
    }

    /// Takes note of a step that changes no weight for another reason than its scale.
    pub fn skip(&mut self) -> UpdateOutcome {
        self.skipped_steps += 1;
        UpdateOutcome::Skipped
    }

    /// Takes note of a step in which a loss or a gradient was not finite, on whatever rank.
    pub fn after_overflow(&mut self) -> UpdateOutcome {
        let Some(scaling) = self.scaling else { return UpdateOutcome::Hopeless };
        self.finite_steps = 0;
        if self.tolerated > 0 {
            self.tolerated -= 1;
        } else if self.factor <= scaling.minimum {
            return UpdateOutcome::Hopeless;
        } else {
            self.factor = (0.5 * self.factor).max(scaling.minimum);
        }
        self.skipped_steps += 1;
        UpdateOutcome::Skipped
    }
}

#[cfg(test)]
mod tests {
    use config::Products;

    use config::KeptRunFile;

    use super::*;

    fn scale(scaling: LossScaling) -> LossScale {
        LossScale::new(Precision::Fp16(Products::Chained, scaling))
    }

    /// The factor after each of these steps: `.` is finite, `x` overflows.
    fn factors(mut scale: LossScale, steps: &str) -> Vec<f32> {
        factors_of(&mut scale, steps)
    }

    fn saved(scale: &LossScale) -> RunState {
        RunState {
            steps: 9,
            sequences: 9,
            skipped_steps: scale.skipped_steps(),
            loss_scale: scale.state(),
            held_out_loss: None,
            data_xxh3: None,
            spikes: None,
            run: KeptRunFile::new(""),
        }
    }

    fn factors_of(scale: &mut LossScale, steps: &str) -> Vec<f32> {
        let after = |step| {
            let update = if step == 'x' { scale.after_overflow() } else { scale.after_finite() };
            if update == UpdateOutcome::Hopeless { 0.0 } else { scale.factor() }
        };
        steps.chars().map(after).collect()
    }

    #[test]
    fn the_factor_doubles_after_a_window_and_halves_after_overflows() {
        let scaling = LossScaling { initial: 8.0, window: 3, hysteresis: 1, minimum: 2.0 };
        assert_eq!(factors(scale(scaling), "...x..x..."), [8.0, 8.0, 16.0, 8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 8.0]);
    }

    #[test]
    fn overflows_are_tolerated_until_the_factor_grows_again() {
        let scaling = LossScaling { initial: 8.0, window: 2, hysteresis: 2, minimum: 1.0 };
        assert_eq!(factors(scale(scaling), "x.x.x..xx"), [8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 4.0, 4.0, 2.0]);
    }

    #[test]
    fn an_overflow_at_the_least_factor_is_hopeless() {
        let scaling = LossScaling { initial: 4.0, window: 9, hysteresis: 1, minimum: 2.0 };
        let mut scale = scale(scaling);
        assert_eq!([scale.after_overflow(), scale.after_overflow()], [UpdateOutcome::Skipped, UpdateOutcome::Hopeless]);
        assert_eq!((scale.factor(), scale.skipped_steps()), (2.0, 1));
        assert_eq!(LossScale::new(Precision::Bf16(Products::Chained)).after_overflow(), UpdateOutcome::Hopeless);
    }

    #[test]
    fn a_resumed_scale_goes_on_wherever_it_stood() {
        let scaling = LossScaling { initial: 8.0, window: 3, hysteresis: 2, minimum: 1.0 };
        let steps = "..x.x...x.x..";
        let whole = factors(scale(scaling), steps);
        for cut in 0..steps.len() {
            let mut before = scale(scaling);
            factors_of(&mut before, &steps[..cut]);
            let state = saved(&before);
            let resumed = LossScale::resumed(Precision::Fp16(Products::Chained, scaling), &state);
            assert_eq!(resumed, before);
            assert_eq!(factors(resumed, &steps[cut..]), whole[cut..], "after {cut} steps");
        }
    }

    #[test]
    fn another_precision_begins_its_factor_and_keeps_the_count_of_updates() {
        let scaling = LossScaling { initial: 8.0, window: 3, hysteresis: 1, minimum: 4.0 };
        let mut fp16 = scale(LossScaling { minimum: 1.0, ..scaling });
        factors_of(&mut fp16, "xx");
        let bf16 = LossScale::resumed(Precision::Bf16(Products::Chained), &saved(&fp16));
        assert_eq!((bf16.factor(), bf16.skipped_steps()), (1.0, 2));
        let again = LossScale::resumed(Precision::Fp16(Products::Chained, scaling), &saved(&bf16));
        assert_eq!((again.factor(), again.skipped_steps()), (8.0, 2));
        // A factor below the new minimum rises to it.
        assert_eq!(LossScale::resumed(Precision::Fp16(Products::Chained, scaling), &saved(&fp16)).factor(), 4.0);
    }

    #[test]
    fn a_run_without_gradients_does_not_scale_for_ever() {
        let scaling = LossScaling { initial: LossScaling::LARGEST, window: 1, hysteresis: 1, minimum: 1.0 };
        assert_eq!(factors(scale(scaling), ".."), [LossScaling::LARGEST; 2]);
    }
}
