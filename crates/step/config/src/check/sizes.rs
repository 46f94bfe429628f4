//! Rules of sheer size: what is beyond them overflows counters or takes long to plan, and no machine runs it.

use super::{Rules, nearest_of};
use crate::batch::BatchGrowth;
use crate::params::params;
use crate::problem::Problem;
use crate::run_file::{Item as _, RunConfig};
use crate::schedule::ScheduleSpec;
use crate::unit::Unit;
use crate::unit_class::{PerClass, UnitClass};

/// Parameters of the largest model that is planned: some ten times the largest that anyone has trained.
const MAX_PARAMETERS: u128 = 1 << 44;
/// Tokens of a microbatch.
const MAX_MICROBATCH_TOKENS: u128 = 1 << 24;
/// Microbatches of a replica, times the layers and stages that each passes: what programs grow with.
const MAX_PASSES: u128 = 1 << 16;
/// The same for a measured run, of which a table may have long ones: its passes are priced and never planned.
const MAX_PASSES_OF_MEASURED: u128 = 1 << 18;
/// The same of all sizes of a growing batch together, each of which is planned before the first step.
const MAX_PASSES_OF_RAMP: u128 = 1 << 21;
/// Layers times microbatches that one rank holds at the same time: planning their places takes the square of it.
const MAX_HELD: u128 = 1 << 12;
/// Elements of all activations of a replica's step, as wide as the widest matrix.
const MAX_ACTIVATIONS: u128 = 1 << 52;

/// Only asked once every other rule holds: the numbers are positive and divide each other.
pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    check_with(config, MAX_PASSES, rules);
}

/// The same for a run that was measured and is only priced.
pub(super) fn check_measured(config: &RunConfig, rules: &mut Rules) {
    check_with(config, MAX_PASSES_OF_MEASURED, rules);
}

fn check_with(config: &RunConfig, max_passes: u128, rules: &mut Rules) {
    parameters(config, rules);
    microbatch(config, rules);
    passes(config, max_passes, rules);
    passes_of_ramp(config, rules);
    held(config, rules);
    activations(config, rules);
}

fn parameters(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    let of_unit = |unit| -> u128 {
        let elements = |shape: &[usize]| shape.iter().map(|size| *size as u128).product::<u128>();
        params(model, unit).iter().map(|param| elements(&param.shape)).sum()
    };
    let of_class = PerClass::new(&model.classes(), |class| of_unit(model.classes().first(class)));
    let layers = match of_class.of_layers() {
        [equal] => equal * model.num_layers as u128,
        _ => (0..model.num_layers as u32).map(|layer| of_class.of(Unit::Layer(layer))).sum(),
    };
    // Adapters of a layer are at most as large as those of the widest, and all layers with experts have equal ones.
    let most = |is_of: fn(&UnitClass) -> bool| {
        of_class.iter().filter(|(class, _)| is_of(class)).map(|(_, number)| *number).max().unwrap_or(0)
    };
    let adapters = most(|class| matches!(class, UnitClass::Adapters(_))) * model.num_layers as u128;
    let experts = most(|class| matches!(class, UnitClass::Experts(_))) * model.num_expert_layers() as u128;
    let parameters =
        of_unit(Unit::Table) + of_unit(Unit::Embedding) + layers + experts + adapters + of_unit(Unit::Head);
    if parameters > MAX_PARAMETERS {
        let rule = format!("has {parameters} parameters, more than {MAX_PARAMETERS}");
        rules.report(Problem::of_key("[model]", rule, "use a smaller hidden, ffn_hidden, vocabulary or num_layers"));
    }
}

fn microbatch(config: &RunConfig, rules: &mut Rules) {
    let (size, length) = (config.parallelism.microbatch_size, config.train.sequence_length);
    let tokens = size as u128 * length as u128;
    if tokens > MAX_MICROBATCH_TOKENS {
        let rule = format!("x train.sequence_length = {length} is {tokens} tokens, more than {MAX_MICROBATCH_TOKENS}");
        rules.report(Problem::of_value("parallelism.microbatch_size", size, rule, "use smaller microbatches"));
    }
}

fn passes(config: &RunConfig, max_passes: u128, rules: &mut Rules) {
    let (train, parallelism) = (&config.train, &config.parallelism);
    let microbatches = parallelism.num_microbatches(train.global_batch);
    let stops = stops(config);
    if microbatches as u128 * stops as u128 <= max_passes {
        return;
    }
    let rule = format!(
        "is {microbatches} microbatches of {} per replica; times {stops} layers and stages that is more than {max_passes} \
         passes, the limit of a program",
        parallelism.microbatch_size
    );
    let per_replica = train.global_batch / parallelism.degrees.dp;
    let fits = |size: &usize| (per_replica / size) as u128 * stops as u128 <= max_passes;
    let sizes: Vec<usize> = mesh::divisors(per_replica).into_iter().filter(fits).collect();
    let remedy = match sizes.is_empty() {
        true => "use a smaller batch".into(),
        false => {
            format!("use parallelism.microbatch_size = {}", nearest_of(&sizes, parallelism.microbatch_size, 3))
        }
    };
    rules.report(Problem::of_value("train.global_batch", train.global_batch, rule, remedy));
}

fn passes_of_ramp(config: &RunConfig, rules: &mut Rules) {
    let (train, parallelism) = (&config.train, &config.parallelism);
    let Some(ramp) = train.batch_ramp.filter(|ramp| ramp.increment > 0) else { return };
    let sizes = (ramp.start..train.global_batch).step_by(ramp.increment);
    let microbatches = |size: usize| match ramp.grows {
        BatchGrowth::Microbatches => parallelism.num_microbatches(size) as u128,
        BatchGrowth::MicrobatchSize => parallelism.num_microbatches(train.global_batch) as u128,
    };
    let number = sizes.len();
    let passes = sizes.map(microbatches).sum::<u128>() * stops(config) as u128;
    if passes > MAX_PASSES_OF_RAMP {
        let rule = format!(
            "goes through {number} sizes, whose programs have {passes} passes together, more than {MAX_PASSES_OF_RAMP}"
        );
        rules.report(Problem::of_value("train.batch_ramp", ramp.written(), rule, "use a larger increment"));
    }
}

/// Layers and stages that each microbatch passes.
fn stops(config: &RunConfig) -> usize {
    let parallelism = &config.parallelism;
    config.model.num_layers + parallelism.degrees.pp * parallelism.schedule.stages_per_rank().unwrap_or(1)
}

fn held(config: &RunConfig, rules: &mut Rules) {
    let parallelism = &config.parallelism;
    let microbatches = parallelism.num_microbatches(config.train.global_batch);
    let stages_per_rank = parallelism.schedule.stages_per_rank().unwrap_or(1);
    let layers = config.model.num_layers.div_ceil(parallelism.degrees.pp * stages_per_rank);
    let (name, held) = match &parallelism.schedule {
        ScheduleSpec::Generated(kind) => (kind.name(), kind.held_passes(parallelism.degrees.pp, microbatches)),
        // Whatever is in it, it does not hold more.
        ScheduleSpec::Given(_) => ("", microbatches),
    };
    let least = microbatches.min(parallelism.degrees.pp) * stages_per_rank;
    let is_beyond = |passes: usize| passes as u128 * layers as u128 > MAX_HELD;
    if is_beyond(least) {
        let rule = format!(
            "is {layers} layers per stage; times microbatches in flight ({least}) that is more than {MAX_HELD}"
        );
        rules.report(Problem::of_value("model.num_layers", config.model.num_layers, rule, "use fewer layers"));
    } else if is_beyond(held) {
        let rule =
            format!("holds {held} microbatches in {layers} layers of a stage at once, more than {MAX_HELD} together");
        let (key, value) = match &parallelism.schedule {
            ScheduleSpec::Generated(_) => ("parallelism.schedule", format!("{name:?}")),
            ScheduleSpec::Given(given) => ("parallelism.schedule_file", format!("{:?}", given.path)),
        };
        rules.report(Problem::of_value(key, value, rule, "use \"1f1b\", larger microbatches or more stages"));
    }
}

fn activations(config: &RunConfig, rules: &mut Rules) {
    let (model, train) = (&config.model, &config.train);
    let sequences = train.global_batch / config.parallelism.degrees.dp;
    let tokens = sequences as u128 * train.sequence_length as u128;
    let ffn_width = model.ffn_widths().into_iter().map(|(_, width)| width).max().unwrap_or(0);
    let experts_width = model.experts.map_or(0, |experts| experts.hidden.saturating_mul(experts.per_token));
    let width = model.hidden.max(ffn_width).max(experts_width).max(model.query_width()) as u128;
    let elements = tokens * width * model.num_layers as u128;
    if elements > MAX_ACTIVATIONS {
        let rule = format!(
            "is {tokens} tokens per replica; times {} layers of width {width} that is more activations than any machine holds",
            model.num_layers
        );
        rules.report(Problem::of_value("train.global_batch", train.global_batch, rule, "use a smaller batch"));
    }
}
