//! The keys of `[train]` that say in which numbers a run stores what it computes.

use super::reader::{Choices, Reader, name_of};
use super::train::short_count;
use super::writer::Writer;
use crate::precision::{Format, LossScaling, Precision};
use crate::problem::Problem;

const FORMATS: &Choices<Format> = &[("fp32", Format::Fp32), ("bf16", Format::Bf16), ("fp16", Format::Fp16)];

const LOSS_SCALING_KEYS: [&str; 4] =
    ["train.initial_loss_scale", "train.loss_scale_window", "train.loss_scale_hysteresis", "train.min_loss_scale"];

/// Reads the keys.
pub fn read(reader: &mut Reader) -> Precision {
    let format = reader.choice("train.precision", FORMATS, Format::Fp32);
    let [initial, window, hysteresis, minimum] = LOSS_SCALING_KEYS;
    let scaling = LossScaling {
        initial: reader.number(initial, LossScaling::USUAL.initial),
        window: short_count(reader, window, LossScaling::USUAL.window),
        hysteresis: short_count(reader, hysteresis, LossScaling::USUAL.hysteresis),
        minimum: reader.number(minimum, LossScaling::USUAL.minimum),
    };
    let precision = match format {
        Format::Fp32 => Precision::Fp32,
        Format::Bf16 => Precision::Bf16,
        Format::Fp16 => return Precision::Fp16(scaling),
    };
    for key in LOSS_SCALING_KEYS.into_iter().filter(|key| reader.is_set(key)).collect::<Vec<_>>() {
        let rule = format!("means nothing where train.precision = {:?}", name_of(FORMATS, format));
        reader.report(Problem::of_key(key, rule, "write train.precision = \"fp16\", or leave it out"));
    }
    precision
}

/// Writes the keys that have a meaning for this run.
pub fn write(precision: Precision, writer: &mut Writer) {
    writer.text("precision", name_of(FORMATS, precision.stored()));
    match precision {
        Precision::Fp32 | Precision::Bf16 => {}
        Precision::Fp16(LossScaling { initial, window, hysteresis, minimum }) => {
            writer.power_of_two("initial_loss_scale", initial);
            writer.count("loss_scale_window", window);
            writer.count("loss_scale_hysteresis", hysteresis);
            writer.power_of_two("min_loss_scale", minimum);
        }
    }
}
