//! Rules of `[train]`.

use super::Rules;
use crate::anomalies::OnNonFinite;
use crate::learning_rate::LearningRateSchedule;
use crate::optimizer::Optimizer;
use crate::parallelism::Overlap;
use crate::precision::{LossScaling, Precision};
use crate::run_file::{Item as _, RunConfig};
use crate::training::TrainSpec;
use crate::zero::ZeroStage;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let (train, anomalies, context) = (&config.train, config.train.anomalies, config.model.context);
    refuse! { rules;
        context > 0 && train.sequence_length > context => "train.sequence_length" = train.sequence_length,
            format!("is longer than model.context = {context}"), format!("use at most {context}");
    }
    learning_rate(train, rules);
    let (decay, rate) = (train.weight_decay, train.learning_rate);
    refuse! { rules;
        // AdamW multiplies weights by 1 - learning_rate * weight_decay.
        decay * rate >= 1.0 => "train.weight_decay" = format!("{decay:?}"),
            format!("times train.learning_rate = {rate:?} is 1 or more, which flips the signs of weights"),
            "use a smaller product";
    }
    muon(config, rules);
    loss_scaling(config, rules);
    let key = match anomalies.on_nonfinite {
        OnNonFinite::RollBack => "train.on_nonfinite",
        OnNonFinite::Stop | OnNonFinite::Skip => "train.on_spike",
    };
    refuse! { rules;
        anomalies.rolls_back() && config.run.save_every == 0 => key = "\"rollback\"",
            "needs checkpoints to return to; run.save_every = 0 saves none before the end",
            "set run.save_every, such as 100";
    }
}

fn learning_rate(train: &TrainSpec, rules: &mut Rules) {
    let (peak, minimum) = (train.learning_rate, train.min_learning_rate);
    let (steps, warmup) = (train.schedule_length(), train.warmup_steps);
    let key = steps_key(train);
    refuse! { rules;
        // The minimum follows the peak, unless it is given; nothing is known about it next to a peak that is wrong.
        peak > 0.0 && minimum < 0.0 => "train.min_learning_rate" = format!("{minimum:?}"),
            "must not be negative", "use 0 or more";
        peak > 0.0 && minimum > peak => "train.min_learning_rate" = format!("{minimum:?}"),
            format!("must be at most train.learning_rate = {peak:?}"), format!("use at most {peak:?}");
        warmup > steps && steps > 0 => "train.warmup_steps" = warmup,
            format!("is longer than {key} = {steps}, so the peak is never reached"),
            format!("use at most {steps}");
        train.schedule_steps.is_some() && !train.schedule.has_steps() => "train.schedule_steps" = steps,
            "has no effect where train.schedule does not end, as \"constant\" and \"cosine-restarts\"",
            "leave it out";
    }
    if warmup <= steps {
        decay(train, rules);
    }
}

/// The key that says how long the schedule is.
fn steps_key(train: &TrainSpec) -> &'static str {
    if train.schedule_steps.is_some() { "train.schedule_steps" } else { "train.steps" }
}

/// The decay at the end has room after the warm-up.
fn decay(train: &TrainSpec, rules: &mut Rules) {
    let LearningRateSchedule::WarmupStableDecay { decay, .. } = train.schedule else { return };
    let length = train.schedule_length();
    let (steps, left) = (decay.steps(length), length - train.warmup_steps);
    let of = format!("{} = {length} and train.warmup_steps = {}", steps_key(train), train.warmup_steps);
    let remedy = if left == 0 { "use a shorter warm-up".into() } else { format!("use at most {left}") };
    refuse! { rules;
        steps > left => "train.decay_length" = decay.written(),
            format!("is a decay of {steps} steps; {of} leave {left}"), remedy;
    }
}

/// Muon multiplies matrices in single precision, and gathers updates while nothing else uses their group.
fn muon(config: &RunConfig, rules: &mut Rules) {
    let Optimizer::Muon(_) = config.train.optimizer else { return };
    let products = config.train.precision.products();
    let overlaps = config.overlap() == Overlap::On;
    refuse! { rules;
        products.block().is_some() => "train.optimizer" = "\"muon\"",
            format!("must have train.products = \"chained\" or \"pairs\"; got {}", products.written()),
            "use train.products = \"chained\"";
        overlaps && config.parallelism.zero != ZeroStage::Off => "train.optimizer" = "\"muon\"",
            "gathers the updates of shards in line; with parallelism.zero it must have parallelism.overlap = false",
            "set parallelism.overlap = false, or parallelism.zero = 0";
    }
}

fn loss_scaling(config: &RunConfig, rules: &mut Rules) {
    let Precision::Fp16(_, LossScaling { initial, minimum, .. }) = config.train.precision else { return };
    let largest = LossScaling::LARGEST;
    for (key, scale) in [("train.initial_loss_scale", initial), ("train.min_loss_scale", minimum)] {
        let in_range = (1.0..=largest).contains(&scale);
        let below = f32::from_bits(scale.to_bits() & POWER_BITS);
        refuse! { rules;
            !in_range => key = format!("{scale:?}"), "is out of the range of loss scales",
                format!("use 1 to {largest:.0}");
            in_range && below != scale => key = format!("{scale:?}"), "must be a power of two",
                format!("use {below:?} or {:?}", 2.0 * below);
        }
    }
    refuse! { rules;
        minimum > initial => "train.min_loss_scale" = format!("{minimum:?}"),
            format!("is more than train.initial_loss_scale = {initial:?}"), format!("use at most {initial:?}");
    }
}

/// Sign and exponent of an `f32`.
const POWER_BITS: u32 = 0xff80_0000;
