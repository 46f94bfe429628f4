//! The keys of `[train]` that name a learning-rate schedule and give it its lengths.

use super::reader::{Choices, Reader, name_of, short_count};
use super::source::Value;
use super::writer::Writer;
use crate::learning_rate::{DecayLength, DecayShape, LearningRateSchedule};
use crate::problem::Problem;

const SCHEDULE: &str = "train.schedule";
const DECAY_LENGTH: &str = "train.decay_length";
const DECAY_SHAPE: &str = "train.decay_shape";
const RESTART_STEPS: &str = "train.restart_steps";
const RESTART_GROWTH: &str = "train.restart_growth";

/// A schedule without its lengths.
#[derive(Clone, Copy, PartialEq)]
enum Name {
    Cosine,
    Linear,
    Constant,
    WarmupStableDecay,
    CosineRestarts,
}

const NAMES: &Choices<Name> = &[
    ("cosine", Name::Cosine),
    ("linear", Name::Linear),
    ("constant", Name::Constant),
    ("wsd", Name::WarmupStableDecay),
    ("cosine-restarts", Name::CosineRestarts),
];

const SHAPES: &Choices<DecayShape> =
    &[("linear", DecayShape::Linear), ("cosine", DecayShape::Cosine), ("1-sqrt", DecayShape::OneMinusSqrt)];

/// Reads the schedule of a run of `steps`.
pub fn read(reader: &mut Reader, steps: u32) -> LearningRateSchedule {
    let name = reader.choice(SCHEDULE, NAMES, Name::Cosine);
    let wanted = "a number of steps, or a share of all steps such as 0.2";
    let decay = reader.value_as(DECAY_LENGTH, wanted, decay_length).unwrap_or(DecayLength::Share(0.2));
    let shape = reader.choice(DECAY_SHAPE, SHAPES, DecayShape::Linear);
    let first_steps = short_count(reader, RESTART_STEPS, (steps / 4).max(1));
    let growth = short_count(reader, RESTART_GROWTH, 1);
    let keys = [
        (DECAY_LENGTH, Name::WarmupStableDecay),
        (DECAY_SHAPE, Name::WarmupStableDecay),
        (RESTART_STEPS, Name::CosineRestarts),
        (RESTART_GROWTH, Name::CosineRestarts),
    ];
    for (key, of) in keys {
        if reader.is_set(key) && name != of && !reader.unusable.contains(SCHEDULE) {
            let rule = format!("has no effect without {SCHEDULE} = {:?}", name_of(NAMES, of));
            reader.report(Problem::of_key(key, rule, "leave it out"));
        }
    }
    match name {
        Name::Cosine => LearningRateSchedule::Cosine,
        Name::Linear => LearningRateSchedule::Linear,
        Name::Constant => LearningRateSchedule::Constant,
        Name::WarmupStableDecay => LearningRateSchedule::WarmupStableDecay { decay, shape },
        Name::CosineRestarts => LearningRateSchedule::CosineRestarts { first_steps, growth },
    }
}

/// A whole number is steps, a number below 1 a share.
fn decay_length(value: &Value) -> Option<DecayLength> {
    if let Some(steps) = super::reader::count(value) {
        return (steps > 0).then(|| u32::try_from(steps).ok().map(DecayLength::Steps)).flatten();
    }
    value.number().filter(|share| 0.0 < *share && *share < 1.0).map(DecayLength::Share)
}

/// Writes the keys that have a meaning for this schedule.
pub fn write(schedule: LearningRateSchedule, writer: &mut Writer) {
    let name = match schedule {
        LearningRateSchedule::Cosine => Name::Cosine,
        LearningRateSchedule::Linear => Name::Linear,
        LearningRateSchedule::Constant => Name::Constant,
        LearningRateSchedule::WarmupStableDecay { .. } => Name::WarmupStableDecay,
        LearningRateSchedule::CosineRestarts { .. } => Name::CosineRestarts,
    };
    writer.text("schedule", name_of(NAMES, name));
    match schedule {
        LearningRateSchedule::Cosine | LearningRateSchedule::Linear | LearningRateSchedule::Constant => {}
        LearningRateSchedule::WarmupStableDecay { decay, shape } => {
            match decay {
                DecayLength::Steps(steps) => writer.count("decay_length", steps),
                DecayLength::Share(share) => writer.number("decay_length", share),
            }
            writer.text("decay_shape", name_of(SHAPES, shape));
        }
        LearningRateSchedule::CosineRestarts { first_steps, growth } => {
            writer.count("restart_steps", first_steps);
            writer.count("restart_growth", growth);
        }
    }
}
