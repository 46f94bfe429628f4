//! Rules of `train.batch_ramp`: every size on the way is a batch, too.

use super::Rules;
use crate::batch::{BatchGrowth, BatchRamp};
use crate::parallelism::{FullRecompute, Recompute, SavedInputs, SequenceParallel};
use crate::problem::Problem;
use crate::run_file::{Item as _, RunConfig};
use crate::schedule::ScheduleSpec;

/// Sizes of a growing batch below the full one: every one is planned before the first step.
const MAX_SIZES: usize = 256;

/// A broken rule and its remedy.
type Refusal = (String, String);

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let Some(ramp) = config.train.batch_ramp else { return };
    let judged = leads_there(config, ramp).and_then(|()| match ramp.grows {
        BatchGrowth::Microbatches => more_microbatches(config, ramp),
        BatchGrowth::MicrobatchSize => larger_microbatches(config, ramp),
    });
    if let Err((rule, remedy)) = judged {
        rules.report(Problem::of_value("train.batch_ramp", ramp.written(), rule, remedy));
    }
}

/// The batch grows to the full one, by sizes that replicas and their microbatches divide.
fn leads_there(config: &RunConfig, BatchRamp { start, increment, grows, .. }: BatchRamp) -> Result<(), Refusal> {
    let (full, parallelism) = (config.train.global_batch, &config.parallelism);
    let grain = parallelism.degrees.dp.saturating_mul(parallelism.microbatch_size);
    if start == 0 || increment == 0 {
        return Err(("must start with a batch and grow".into(), "use at least 1 for start and increment".into()));
    }
    if grain > 0 && full.is_multiple_of(grain) {
        let (grain, made_of) = match grows {
            BatchGrowth::Microbatches => {
                (grain, format!("parallelism.microbatch_size = {}", parallelism.microbatch_size))
            }
            // As many microbatches as in a full batch, of any size.
            BatchGrowth::MicrobatchSize => {
                let number = full / grain;
                (parallelism.degrees.dp.saturating_mul(number), format!("{number} microbatches of a full batch"))
            }
        };
        if !are_multiples(grain, [start, increment]) {
            let rule = format!(
                "has batches that are not multiples of parallelism.dp = {} x {made_of}",
                parallelism.degrees.dp
            );
            return Err((rule, format!("use multiples of {grain} for start and increment")));
        }
    }
    if start > full || !(full - start).is_multiple_of(increment) {
        // The starts on either side of this one from which whole increments lead there.
        let rest = full % increment;
        let below = rest + start.min(full).saturating_sub(rest) / increment * increment;
        let starts: Vec<usize> =
            [below, below + increment].into_iter().filter(|start| (1..=full).contains(start)).collect();
        let remedy = format!("use start = {}", mesh::alternatives(&starts));
        return Err((format!("must reach train.global_batch = {full}"), remedy));
    }
    let sizes = (full - start) / increment;
    if sizes > MAX_SIZES {
        let rule = format!("goes through {sizes} sizes, each with a program of its own, more than {MAX_SIZES}");
        return Err((rule, "use a larger increment".into()));
    }
    Ok(())
}

/// The schedule takes every number of microbatches.
fn more_microbatches(config: &RunConfig, BatchRamp { start, increment, .. }: BatchRamp) -> Result<(), Refusal> {
    let (full, parallelism) = (config.train.global_batch, &config.parallelism);
    match &parallelism.schedule {
        ScheduleSpec::Given(_) if start < full => Err((
            "changes the number of microbatches, which parallelism.schedule_file fixes".into(),
            "use a schedule by name, or grows = \"microbatch_size\"".into(),
        )),
        ScheduleSpec::Given(_) => Ok(()),
        ScheduleSpec::Generated(kind) => {
            let grain = parallelism.degrees.dp.saturating_mul(parallelism.microbatch_size);
            let group = grain.saturating_mul(kind.microbatch_group(parallelism.degrees.pp));
            if group == 0 || !full.is_multiple_of(group) || are_multiples(group, [start, increment]) {
                return Ok(());
            }
            let rule = format!(
                "has batches that are not whole groups of parallelism.pp = {} microbatches",
                parallelism.degrees.pp
            );
            Err((rule, format!("use multiples of {group} for start and increment")))
        }
    }
}

/// Where ranks divide tokens, microbatches of every size have equally many for each.
fn larger_microbatches(config: &RunConfig, BatchRamp { start, increment, .. }: BatchRamp) -> Result<(), Refusal> {
    let (train, parallelism) = (&config.train, &config.parallelism);
    let shares_tokens = match (parallelism.sequence_parallel, parallelism.recompute) {
        (SequenceParallel::On, _) => true,
        (SequenceParallel::Off, Recompute::Full(FullRecompute { inputs, .. })) => inputs == SavedInputs::Sharded,
        (SequenceParallel::Off, Recompute::None | Recompute::Selective) => false,
    };
    let grain = parallelism.degrees.dp.saturating_mul(parallelism.microbatch_size);
    // Legal batches are whole microbatches; where this one is not, its own rule says so.
    if !shares_tokens || grain == 0 || train.global_batch < grain || train.sequence_length == 0 {
        return Ok(());
    }
    let sequences_each = parallelism.degrees.dp * (train.global_batch / grain);
    let length = parallelism.slices().tokens(train.sequence_length);
    let tokens = |batch: usize| (batch / sequences_each).saturating_mul(length);
    if parallelism.degrees.tp == 0 || are_multiples(parallelism.degrees.tp, [tokens(start), tokens(increment)]) {
        return Ok(());
    }
    let rule = format!(
        "has microbatches of {} tokens and more, whose sizes parallelism.tp = {} does not always divide; its ranks shard tokens",
        tokens(start),
        parallelism.degrees.tp
    );
    let multiple = (1..=parallelism.degrees.tp)
        .find(|size| are_multiples(parallelism.degrees.tp, [tokens(size * sequences_each)]));
    let multiple = multiple.unwrap_or(parallelism.degrees.tp) * sequences_each;
    Err((rule, format!("use multiples of {multiple} for start and increment")))
}

fn are_multiples<const N: usize>(factor: usize, numbers: [usize; N]) -> bool {
    numbers.iter().all(|number| number.is_multiple_of(factor))
}
