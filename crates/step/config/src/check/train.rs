//! Rules of `[train]`.

use super::Rules;
use crate::anomalies::OnNonFinite;
use crate::data_spec::DeviceChoice;
use crate::learning_rate::{DecayLength, LearningRateSchedule};
use crate::optimizer::Optimizer;
use crate::parallelism::Overlap;
use crate::precision::{LossScaling, Precision};
use crate::problem::Problem;
use crate::run_file::RunConfig;
use crate::training::TrainSpec;
use crate::zero::ZeroStage;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    let context = config.model.context;
    if context > 0 && train.sequence_length > context {
        let rule = format!("is longer than model.context = {context}");
        rules.report(Problem::of_value(
            "train.sequence_length",
            train.sequence_length,
            rule,
            format!("use at most {context}"),
        ));
    }
    learning_rate(config, rules);
    optimizer(config, rules);
    loss_scaling(config, rules);
    anomalies(config, rules);
}

fn anomalies(config: &RunConfig, rules: &mut Rules) {
    let anomalies = config.train.anomalies;
    if anomalies.rolls_back() && config.run.save_every == 0 {
        let key = match anomalies.on_nonfinite {
            OnNonFinite::RollBack => "train.on_nonfinite",
            OnNonFinite::Stop | OnNonFinite::Skip => "train.on_spike",
        };
        let rule = "needs checkpoints to return to; run.save_every = 0 saves none before the end";
        rules.report(Problem::of_value(key, "\"rollback\"", rule, "set run.save_every, such as 100"));
    }
}

fn learning_rate(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    let (peak, minimum) = (train.learning_rate, train.min_learning_rate);
    // The minimum follows the peak, unless it is given; nothing is known about it next to a peak that is wrong.
    if peak <= 0.0 {
        return warmup(config, rules);
    }
    rules.number("train.min_learning_rate", minimum, minimum >= 0.0, "must not be negative", "use 0 or more");
    if minimum > peak {
        let rule = format!("must be at most train.learning_rate = {peak:?}");
        rules.report(Problem::of_value(
            "train.min_learning_rate",
            format!("{minimum:?}"),
            rule,
            format!("use at most {peak:?}"),
        ));
    }
    warmup(config, rules);
}

fn warmup(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    if train.warmup_steps > train.steps && train.steps > 0 {
        let rule = format!("is longer than train.steps = {}, so the peak is never reached", train.steps);
        rules.report(Problem::of_value(
            "train.warmup_steps",
            train.warmup_steps,
            rule,
            format!("use at most {}", train.steps),
        ));
        return;
    }
    schedule(train, rules);
}

/// Lengths of the learning-rate schedule.
fn schedule(train: &TrainSpec, rules: &mut Rules) {
    match train.schedule {
        LearningRateSchedule::Cosine | LearningRateSchedule::Linear | LearningRateSchedule::Constant => {}
        LearningRateSchedule::WarmupStableDecay { decay, .. } => {
            let (steps, left) = (decay.steps(train.steps), train.steps - train.warmup_steps);
            if steps > left {
                let value = match decay {
                    DecayLength::Steps(steps) => steps.to_string(),
                    DecayLength::Share(share) => format!("{share:?}"),
                };
                let of = format!("train.steps = {} and train.warmup_steps = {}", train.steps, train.warmup_steps);
                let rule = format!("is a decay of {steps} steps; {of} leave {left}");
                let remedy = match left {
                    0 => "use a shorter warm-up".into(),
                    _ => format!("use at most {left}"),
                };
                rules.report(Problem::of_value("train.decay_length", value, rule, remedy));
            }
        }
        LearningRateSchedule::CosineRestarts { .. } => {}
    }
}

fn optimizer(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    let decay = train.weight_decay;
    // AdamW multiplies weights by 1 - learning_rate * weight_decay.
    if decay * train.learning_rate >= 1.0 {
        let rule = format!(
            "times train.learning_rate = {:?} is 1 or more, which flips the signs of weights",
            train.learning_rate
        );
        rules.report(Problem::of_value("train.weight_decay", format!("{decay:?}"), rule, "use a smaller product"));
    }
    muon(config, rules);
}

/// Muon multiplies matrices in single precision, and gathers updates while nothing else uses their group.
fn muon(config: &RunConfig, rules: &mut Rules) {
    let Optimizer::Muon(_) = config.train.optimizer else { return };
    let products = config.train.precision.products();
    if products.block().is_some() {
        let rule = format!("must have train.products = \"chained\" or \"pairs\"; got {:?}", products.name());
        let problem = Problem::of_value("train.optimizer", "\"muon\"", rule, "use train.products = \"chained\"");
        rules.report(problem);
    }
    let overlaps = match (config.parallelism.overlap, config.run.device) {
        (Some(overlap), _) => overlap == Overlap::On,
        (None, DeviceChoice::Cpu) => false,
        (None, DeviceChoice::Cuda) => true,
    };
    if overlaps && config.parallelism.zero != ZeroStage::Off {
        let rule =
            "gathers the updates of shards in line; with parallelism.zero it must have parallelism.overlap = false";
        let remedy = "set parallelism.overlap = false, or parallelism.zero = 0";
        rules.report(Problem::of_value("train.optimizer", "\"muon\"", rule, remedy));
    }
}

fn loss_scaling(config: &RunConfig, rules: &mut Rules) {
    let LossScaling { initial, minimum, .. } = match config.train.precision {
        Precision::Fp32(_) | Precision::Bf16(_) => return,
        Precision::Fp16(_, scaling) => scaling,
    };
    let largest = LossScaling::LARGEST;
    for (key, scale) in [("train.initial_loss_scale", initial), ("train.min_loss_scale", minimum)] {
        let in_range = (1.0..=largest).contains(&scale);
        let remedy = format!("use 1 to {largest:.0}");
        rules.number(key, scale, in_range, "is out of the range of loss scales", &remedy);
        if in_range && !is_power_of_two(scale) {
            let below = f32::from_bits(scale.to_bits() & POWER_BITS);
            let rule = "must be a power of two";
            rules.number(key, scale, false, rule, &format!("use {below:?} or {:?}", 2.0 * below));
        }
    }
    if minimum > initial {
        let rule = format!("is more than train.initial_loss_scale = {initial:?}");
        let remedy = format!("use at most {initial:?}");
        rules.report(Problem::of_value("train.min_loss_scale", format!("{minimum:?}"), rule, remedy));
    }
}

/// Sign and exponent of an `f32`.
const POWER_BITS: u32 = 0xff80_0000;

fn is_power_of_two(scale: f32) -> bool {
    scale.to_bits() & !POWER_BITS == 0
}
