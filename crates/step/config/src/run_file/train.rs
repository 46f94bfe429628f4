//! The section `[train]`.

use super::learning_rate;
use super::optimizer;
use super::parameter_groups;
use super::precision;
use super::reader::{Choices, Reader, count, name_of, short_count};
use super::source::Value;
use super::writer::Writer;
use crate::anomalies::{Anomalies, OnNonFinite, OnSpike};
use crate::batch::{BatchGrowth, BatchOrigin, BatchRamp};
use crate::offload::Offload;
use crate::precision::GradientSums;
use crate::training::TrainSpec;

const GROWTHS: &Choices<BatchGrowth> =
    &[("microbatches", BatchGrowth::Microbatches), ("microbatch_size", BatchGrowth::MicrobatchSize)];

const SUMS: &Choices<GradientSums> = &[("single", GradientSums::Single), ("exact", GradientSums::Exact)];

const OFFLOAD: &Choices<Offload> = &[
    ("none", Offload::None),
    ("optimizer", Offload::Optimizer),
    ("activations", Offload::Activations),
    ("all", Offload::All),
];

const ON_NONFINITE: &Choices<OnNonFinite> =
    &[("stop", OnNonFinite::Stop), ("skip", OnNonFinite::Skip), ("rollback", OnNonFinite::RollBack)];

const ON_SPIKE: &Choices<OnSpike> =
    &[("warn", OnSpike::Warn), ("skip", OnSpike::Skip), ("rollback", OnSpike::RollBack), ("off", OnSpike::Off)];

/// Reads the section; `context` is the default of the sequence length.
pub fn read(reader: &mut Reader, context: usize) -> TrainSpec {
    let clip_norm = reader.number("train.clip_norm", 1.0);
    let steps = short_count(reader, "train.steps", 240);
    let learning_rate = reader.number("train.learning_rate", 3e-3);
    TrainSpec {
        steps,
        global_batch: reader.count("train.global_batch", 16),
        batch_ramp: reader.table_as(
            "train.batch_ramp",
            "a ramp such as { start = 4, increment = 4, sequences = 1000 }",
            &["start", "increment", "sequences", "grows"],
            ramp,
        ),
        batch_origin: BatchOrigin::default(),
        sequence_length: reader.count("train.sequence_length", context),
        learning_rate,
        min_learning_rate: reader.number("train.min_learning_rate", a_tenth(learning_rate)),
        warmup_steps: short_count(reader, "train.warmup_steps", (steps / 10).min(20)),
        schedule: learning_rate::read(reader, steps),
        optimizer: optimizer::read(reader),
        weight_decay: reader.number("train.weight_decay", 0.1),
        beta1: reader.number("train.beta1", 0.9),
        beta2: reader.number("train.beta2", 0.95),
        epsilon: reader.number("train.epsilon", 1e-8),
        clip_norm: (clip_norm != 0.0).then_some(clip_norm),
        embedding_gradient_scale: reader.number("train.embedding_gradient_scale", 1.0),
        ema_decay: reader.optional_number("train.ema_decay").filter(|decay| *decay != 0.0),
        groups: parameter_groups::read(reader),
        precision: precision::read(reader),
        sums: reader.choice("train.sums", SUMS, GradientSums::Single),
        offload: reader.choice("train.offload", OFFLOAD, Offload::None),
        anomalies: anomalies(reader),
        seed: reader.seed("train.seed", 0),
    }
}

fn anomalies(reader: &mut Reader) -> Anomalies {
    let usual = Anomalies::default();
    Anomalies {
        on_nonfinite: reader.choice("train.on_nonfinite", ON_NONFINITE, usual.on_nonfinite),
        on_spike: reader.choice("train.on_spike", ON_SPIKE, usual.on_spike),
        spike_score: reader.number("train.spike_score", usual.spike_score),
    }
}

/// A table with all three counts, and what grows where that is said.
fn ramp(entries: &[(String, Value)]) -> Option<BatchRamp> {
    let given = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let of = |name: &str| given(name).and_then(count);
    let grows = match given("grows") {
        Some(value) => GROWTHS.iter().find(|(name, _)| Some(*name) == value.text())?.1,
        None => BatchGrowth::Microbatches,
    };
    let ramp =
        BatchRamp { start: of("start")?, increment: of("increment")?, sequences: of("sequences")? as u64, grows };
    let known = 3 + usize::from(given("grows").is_some());
    (entries.len() == known).then_some(ramp)
}

/// The table, as short as it can be.
pub fn written(ramp: BatchRamp) -> String {
    let BatchRamp { start, increment, sequences, grows } = ramp;
    let numbers = format!("start = {start}, increment = {increment}, sequences = {sequences}");
    match grows {
        BatchGrowth::Microbatches => format!("{{ {numbers} }}"),
        BatchGrowth::MicrobatchSize => format!("{{ {numbers}, grows = {:?} }}", name_of(GROWTHS, grows)),
    }
}

/// A tenth in decimal, as a person would write it: that of 0.001 is 0.0001, not 0.000100000005.
fn a_tenth(number: f32) -> f32 {
    number.to_string().parse::<f64>().map_or(number / 10.0, |number| (number / 10.0) as f32)
}

/// Writes the section.
pub fn write(train: &TrainSpec, writer: &mut Writer) {
    writer.section("train");
    writer.count("steps", train.steps);
    writer.count("global_batch", train.global_batch);
    if let Some(ramp) = train.batch_ramp {
        writer.bare("batch_ramp", &written(ramp));
    }
    writer.count("sequence_length", train.sequence_length);
    writer.number("learning_rate", train.learning_rate);
    writer.number("min_learning_rate", train.min_learning_rate);
    writer.count("warmup_steps", train.warmup_steps);
    learning_rate::write(train.schedule, writer);
    optimizer::write(train.optimizer, writer);
    writer.number("weight_decay", train.weight_decay);
    writer.number("beta1", train.beta1);
    writer.number("beta2", train.beta2);
    writer.number("epsilon", train.epsilon);
    writer.number("clip_norm", train.clip_norm.unwrap_or(0.0));
    writer.number("embedding_gradient_scale", train.embedding_gradient_scale);
    if let Some(decay) = train.ema_decay {
        writer.number("ema_decay", decay);
    }
    parameter_groups::write(&train.groups, writer);
    precision::write(train.precision, writer);
    writer.text("sums", name_of(SUMS, train.sums));
    match train.offload {
        Offload::None => {}
        Offload::Optimizer | Offload::Activations | Offload::All => {
            writer.text("offload", name_of(OFFLOAD, train.offload));
        }
    }
    writer.text("on_nonfinite", name_of(ON_NONFINITE, train.anomalies.on_nonfinite));
    writer.text("on_spike", name_of(ON_SPIKE, train.anomalies.on_spike));
    writer.number("spike_score", train.anomalies.spike_score);
    writer.count("seed", train.seed);
}
