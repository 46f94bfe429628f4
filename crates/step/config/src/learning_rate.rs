//! The learning rate of every step: a linear warm-up, then a schedule.

use std::f64::consts::PI;

use crate::names::names;
use crate::training::TrainSpec;

/// Shape of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearningRateSchedule {
    /// Half a cosine from peak to minimum.
    Cosine,
    /// A straight line from peak to minimum.
    Linear,
    /// The peak throughout.
    Constant,
    /// Warm-up, stable, decay: the peak, and a decay to the minimum at the end (Hu et al., arXiv 2404.06395).
    WarmupStableDecay {
        /// Length of the decay.
        decay: DecayLength,
        /// Shape of the decay.
        shape: DecayShape,
    },
    /// Half cosines from peak to minimum, each of which begins at the peak again (Loshchilov, Hutter, arXiv
    /// 1608.03983).
    CosineRestarts {
        /// Steps of the first cycle.
        first_steps: u32,
        /// Each cycle is this many times as long as the one before.
        growth: u32,
    },
}

impl LearningRateSchedule {
    /// Whether it has an end, which [`TrainSpec::schedule_steps`] sets.
    pub fn has_steps(self) -> bool {
        match self {
            LearningRateSchedule::Cosine
            | LearningRateSchedule::Linear
            | LearningRateSchedule::WarmupStableDecay { .. } => true,
            LearningRateSchedule::Constant | LearningRateSchedule::CosineRestarts { .. } => false,
        }
    }
}

/// Length of the decay at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecayLength {
    /// Steps.
    Steps(u32),
    /// A share of all steps of the run, between 0 and 1.
    Share(f32),
}

impl DecayLength {
    /// Steps of the decay in a run of `steps`; a share is rounded, to one step at least.
    pub fn steps(self, steps: u32) -> u32 {
        match self {
            DecayLength::Steps(decay) => decay,
            DecayLength::Share(share) => (f64::from(share) * f64::from(steps)).round().max(1.0) as u32,
        }
    }
}

/// Shape of a fall from peak to minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayShape {
    /// A straight line.
    Linear,
    /// Half a cosine.
    Cosine,
    /// 1 - sqrt(progress): fast at first (Hägele et al., arXiv 2405.18392).
    OneMinusSqrt,
}

names! { DecayShape: "linear" = Linear, "cosine" = Cosine, "1-sqrt" = OneMinusSqrt }

impl DecayShape {
    /// Share of the way from minimum to peak that is left at `progress` of the decay, from 0 to 1.
    fn left(self, progress: f64) -> f64 {
        match self {
            DecayShape::Linear => 1.0 - progress,
            DecayShape::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
            DecayShape::OneMinusSqrt => 1.0 - progress.sqrt(),
        }
    }
}

/// Consecutive steps in which the rate has one form.
enum Phase {
    /// From 0 to the peak.
    WarmUp { steps: u32 },
    /// The peak.
    Stable { steps: u32 },
    /// From peak to minimum within `of` steps, of which the run has `steps`.
    Decay { shape: DecayShape, steps: u32, of: u32 },
    /// The minimum.
    Rest { steps: u32 },
}

/// Phases that a description names at the beginning of a longer list.
const FIRST_PHASES: usize = 4;

impl TrainSpec {
    /// Steps from the first one to the end of the schedule: those of the run, unless a key says otherwise.
    pub fn schedule_length(&self) -> u32 {
        self.schedule_steps.unwrap_or(self.steps)
    }

    /// Learning rate of `step`, counted from 0: linear warm-up that reaches the peak at `warmup_steps`, then the
    /// schedule.
    pub fn learning_rate_at(&self, step: u32) -> f32 {
        let peak = f64::from(self.learning_rate);
        let minimum = f64::from(self.min_learning_rate);
        if step < self.warmup_steps {
            return (peak * f64::from(step + 1) / f64::from(self.warmup_steps)) as f32;
        }
        let since = step - self.warmup_steps;
        let length = self.schedule_length();
        let whole = length.saturating_sub(self.warmup_steps).max(1);
        let progress = (f64::from(since) / f64::from(whole)).min(1.0);
        let fall = |shape: DecayShape, progress| minimum + (peak - minimum) * shape.left(progress);
        let rate = match self.schedule {
            LearningRateSchedule::Cosine => fall(DecayShape::Cosine, progress),
            // In this form the bits are those of earlier versions.
            LearningRateSchedule::Linear => peak + (minimum - peak) * progress,
            LearningRateSchedule::Constant => peak,
            LearningRateSchedule::WarmupStableDecay { decay, shape } => {
                let decay = decay.steps(length);
                let first = length.saturating_sub(decay);
                fall(shape, (f64::from(step.saturating_sub(first)) / f64::from(decay.max(1))).min(1.0))
            }
            LearningRateSchedule::CosineRestarts { first_steps, growth } => {
                let Cycle { steps, since } = Cycle::of(since, first_steps, growth);
                fall(DecayShape::Cosine, since as f64 / steps as f64)
            }
        };
        rate as f32
    }

    /// The phases of the learning rate in words, such as "linear to 0.001 in 60 steps, then cosine to 0.0001 in 180
    /// steps".
    pub fn learning_rate_phases(&self) -> String {
        let (peak, minimum) = (self.learning_rate, self.min_learning_rate);
        let in_words = |phase: &Phase| match phase {
            Phase::WarmUp { steps } => format!("linear to {peak:?} in {}", counted(*steps)),
            Phase::Stable { steps } => format!("{peak:?} for {}", counted(*steps)),
            Phase::Decay { shape, steps, of } if steps == of => {
                format!("{} to {minimum:?} in {}", shape.name(), counted(*steps))
            }
            Phase::Rest { steps } => format!("{minimum:?} for {}", counted(*steps)),
            Phase::Decay { shape, steps, of } => {
                format!("{} toward {minimum:?} in {steps} of {}", shape.name(), counted(*of))
            }
        };
        let (phases, unlisted) = self.phases();
        let mut words: Vec<String> = phases.iter().take(FIRST_PHASES + 1).map(in_words).collect();
        if let [.., last] = phases.as_slice()
            && phases.len() > FIRST_PHASES + 1
        {
            words[FIRST_PHASES] = format!("{} more", phases.len() - FIRST_PHASES - 1 + unlisted);
            words.push(in_words(last));
        }
        words.join(", ")
    }

    /// The phases, and the number of those before the last one that are not listed, because they are as long as the
    /// one before them.
    fn phases(&self) -> (Vec<Phase>, usize) {
        let whole = self.steps.saturating_sub(self.warmup_steps);
        // Steps of the schedule after the warm-up, and those of the run after the schedule.
        let (of, rest) = (
            self.schedule_length().saturating_sub(self.warmup_steps),
            self.steps.saturating_sub(self.schedule_length().max(self.warmup_steps)),
        );
        let mut unlisted = 0;
        let mut phases = vec![Phase::WarmUp { steps: self.warmup_steps.min(self.steps) }];
        let mut falling = |shape| {
            phases.extend([Phase::Decay { shape, steps: whole.min(of), of }, Phase::Rest { steps: rest }]);
        };
        match self.schedule {
            LearningRateSchedule::Cosine => falling(DecayShape::Cosine),
            LearningRateSchedule::Linear => falling(DecayShape::Linear),
            LearningRateSchedule::Constant => phases.push(Phase::Stable { steps: whole }),
            LearningRateSchedule::WarmupStableDecay { decay, shape } => {
                let decay = decay.steps(self.schedule_length()).min(of);
                let stable = whole.min(of - decay);
                phases.push(Phase::Stable { steps: stable });
                phases.push(Phase::Decay { shape, steps: whole.min(of) - stable, of: decay });
                phases.push(Phase::Rest { steps: rest });
            }
            LearningRateSchedule::CosineRestarts { first_steps, growth } => {
                let (mut left, mut of) = (whole, first_steps.max(1));
                while left > 0 {
                    let steps = of.min(left);
                    phases.push(Phase::Decay { shape: DecayShape::Cosine, steps, of });
                    (left, of) = (left - steps, of.saturating_mul(growth.max(1)));
                    if growth <= 1 && phases.len() > FIRST_PHASES + 2 && left > of {
                        unlisted = ((left - 1) / of) as usize;
                        left -= (left - 1) / of * of;
                    }
                }
            }
        }
        let has_steps = |phase: &Phase| match phase {
            Phase::WarmUp { steps } | Phase::Stable { steps } | Phase::Decay { steps, .. } | Phase::Rest { steps } => {
                *steps > 0
            }
        };
        phases.retain(has_steps);
        (phases, unlisted)
    }
}

/// The cycle of a step.
struct Cycle {
    /// Its steps.
    steps: u64,
    /// Steps of it before this one.
    since: u64,
}

impl Cycle {
    /// Of the step `since` the first cycle began.
    fn of(since: u32, first_steps: u32, growth: u32) -> Cycle {
        let (mut steps, growth) = (u64::from(first_steps.max(1)), u64::from(growth.max(1)));
        let mut since = u64::from(since);
        if growth == 1 {
            return Cycle { steps, since: since % steps };
        }
        while since >= steps {
            since -= steps;
            steps *= growth;
        }
        Cycle { steps, since }
    }
}

fn counted(steps: u32) -> String {
    if steps == 1 { "1 step".into() } else { format!("{steps} steps") }
}
