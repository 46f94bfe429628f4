//! Rules of `[train]`.

use super::Rules;
use crate::batch::BatchRamp;
use crate::precision::{LossScaling, Precision};
use crate::problem::Problem;
use crate::run_file::RunConfig;
use crate::schedule::ScheduleSpec;

/// Sizes of a growing batch below the full one: every one is planned before the first step.
const MAX_RAMP_SIZES: usize = 256;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    rules.all_positive(&[
        ("train.steps", train.steps as usize),
        ("train.global_batch", train.global_batch),
        ("train.sequence_length", train.sequence_length),
    ]);
    let context = config.model.context;
    if context > 0 && train.sequence_length > context {
        let rule = format!("is longer than model.context = {context}");
        rules.report(Problem::of_value(
            "train.sequence_length",
            train.sequence_length,
            rule,
            format!("at most {context} would do"),
        ));
    }
    batch_ramp(config, rules);
    learning_rate(config, rules);
    optimizer(config, rules);
    loss_scaling(config, rules);
}

/// Every size on the way is a batch, too.
fn batch_ramp(config: &RunConfig, rules: &mut Rules) {
    let (train, parallelism) = (&config.train, &config.parallelism);
    let Some(BatchRamp { start, increment, sequences }) = train.batch_ramp else { return };
    let written = format!("{{ start = {start}, increment = {increment}, sequences = {sequences} }}");
    let mut refuse = |rule: String, remedy: String| {
        rules.report(Problem::of_value("train.batch_ramp", &written, rule, remedy));
    };
    let (full, grain) = (train.global_batch, parallelism.dp.saturating_mul(parallelism.microbatch_size));
    if start == 0 || increment == 0 {
        return refuse("starts with nothing or does not grow".into(), "at least 1 of both would do".into());
    }
    if grain > 0 && full.is_multiple_of(grain) && !(start.is_multiple_of(grain) && increment.is_multiple_of(grain)) {
        let rule = format!(
            "has batches that are not multiples of parallelism.dp = {} x parallelism.microbatch_size = {}",
            parallelism.dp, parallelism.microbatch_size
        );
        return refuse(rule, format!("multiples of {grain} for start and increment would do"));
    }
    if start > full || !(full - start).is_multiple_of(increment) {
        // The starts on either side of this one from which whole increments lead there.
        let rest = full % increment;
        let below = rest + start.min(full).saturating_sub(rest) / increment * increment;
        let starts: Vec<usize> =
            [below, below + increment].into_iter().filter(|start| (1..=full).contains(start)).collect();
        let remedy = format!("start = {} would", mesh::alternatives(&starts));
        return refuse(format!("does not lead to train.global_batch = {full}"), remedy);
    }
    let sizes = (full - start) / increment;
    if sizes > MAX_RAMP_SIZES {
        let rule = format!("goes through {sizes} sizes, each with a program of its own, more than {MAX_RAMP_SIZES}");
        return refuse(rule, "a larger increment would do".into());
    }
    match &parallelism.schedule {
        ScheduleSpec::Given(_) => refuse(
            "has steps of several numbers of microbatches, and parallelism.schedule_file is written for one".into(),
            "a schedule by name would do".into(),
        ),
        ScheduleSpec::Generated(kind) => {
            let group = grain.saturating_mul(kind.microbatch_group(parallelism.pp));
            if full.is_multiple_of(group) && !(start.is_multiple_of(group) && increment.is_multiple_of(group)) {
                let rule = format!(
                    "has batches that are not whole groups of parallelism.pp = {} microbatches",
                    parallelism.pp
                );
                refuse(rule, format!("multiples of {group} for start and increment would do"));
            }
        }
    }
}

fn learning_rate(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    let (peak, minimum) = (train.learning_rate, train.min_learning_rate);
    rules.number(
        "train.learning_rate",
        peak,
        peak > 0.0 && peak <= 1.0,
        "teaches nothing or diverges",
        "more than 0 and at most 1 would do",
    );
    // The minimum follows the peak, unless it is given; nothing is known about it beside a peak that is wrong.
    if peak <= 0.0 {
        return warmup(config, rules);
    }
    rules.number("train.min_learning_rate", minimum, minimum >= 0.0, "is below 0", "0 or more would do");
    if minimum > peak {
        let rule = format!("is more than train.learning_rate = {peak:?}, from which it falls");
        rules.report(Problem::of_value(
            "train.min_learning_rate",
            format!("{minimum:?}"),
            rule,
            format!("at most {peak:?} would do"),
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
            format!("at most {} would do", train.steps),
        ));
    }
}

fn optimizer(config: &RunConfig, rules: &mut Rules) {
    let train = &config.train;
    let decay = train.weight_decay;
    rules.number("train.weight_decay", decay, decay >= 0.0, "makes weights grow", "0 or more would do");
    // AdamW multiplies weights by 1 - learning_rate * weight_decay.
    if decay * train.learning_rate >= 1.0 {
        let rule = format!(
            "times train.learning_rate = {:?} is 1 or more, which turns the signs of weights",
            train.learning_rate
        );
        rules.report(Problem::of_value("train.weight_decay", format!("{decay:?}"), rule, "a smaller product would do"));
    }
    rules.below_one("train.beta1", train.beta1, "is no decay of a running mean");
    rules.below_one("train.beta2", train.beta2, "is no decay of a running mean");
    rules.number(
        "train.epsilon",
        train.epsilon,
        train.epsilon > 0.0,
        "does not keep AdamW from dividing by 0",
        "1e-8 would",
    );
    if let Some(clip) = train.clip_norm {
        rules.number("train.clip_norm", clip, clip > 0.0, "is no norm", "more than 0 would be, or 0 for no clipping");
    }
}

fn loss_scaling(config: &RunConfig, rules: &mut Rules) {
    let LossScaling { initial, window, hysteresis, minimum } = match config.train.precision {
        Precision::Fp32 | Precision::Bf16 => return,
        Precision::Fp16(scaling) => scaling,
    };
    rules.all_positive(&[
        ("train.loss_scale_window", window as usize),
        ("train.loss_scale_hysteresis", hysteresis as usize),
    ]);
    let largest = LossScaling::LARGEST;
    for (key, scale) in [("train.initial_loss_scale", initial), ("train.min_loss_scale", minimum)] {
        let in_range = (1.0..=largest).contains(&scale);
        let remedy = format!("1.0 to {largest:?} would do");
        rules.number(key, scale, in_range, "is out of the range of loss scales", &remedy);
        if in_range && !is_power_of_two(scale) {
            let below = f32::from_bits(scale.to_bits() & POWER_BITS);
            let rule = "is no power of two, so scaling would round";
            rules.number(key, scale, false, rule, &format!("{below:?} or {:?} would not", 2.0 * below));
        }
    }
    if minimum > initial {
        let rule = format!("is more than train.initial_loss_scale = {initial:?}");
        let remedy = format!("at most {initial:?} would do");
        rules.report(Problem::of_value("train.min_loss_scale", format!("{minimum:?}"), rule, remedy));
    }
}

/// Sign and exponent of an `f32`.
const POWER_BITS: u32 = 0xff80_0000;

fn is_power_of_two(scale: f32) -> bool {
    scale.to_bits() & !POWER_BITS == 0
}
