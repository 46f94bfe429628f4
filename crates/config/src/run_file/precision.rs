//! The keys of `[train]` that say in which numbers a run stores what it computes.

use super::reader::{Choices, Reader, name_of};
use super::train::short_count;
use super::writer::Writer;
use crate::precision::{Format, LossScaling, Precision, Products};
use crate::problem::Problem;

const FORMATS: &Choices<Format> = &[("fp32", Format::Fp32), ("bf16", Format::Bf16), ("fp16", Format::Fp16)];

const PRODUCTS_KEY: &str = "train.products";

const PRODUCTS: &Choices<Products> = &[("chained", Products::Chained), ("pairs", Products::Pairs)];

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
    let products = reader.choice(PRODUCTS_KEY, PRODUCTS, Products::Chained);
    let (precision, foreign): (Precision, &[(&str, &[&str])]) = match format {
        Format::Fp32 => (Precision::Fp32(products), &[("\"fp16\"", &LOSS_SCALING_KEYS)]),
        Format::Bf16 => (Precision::Bf16(products), &[("\"fp16\"", &LOSS_SCALING_KEYS)]),
        Format::Fp16 => (Precision::Fp16(scaling), &[("\"fp32\" or \"bf16\"", &[PRODUCTS_KEY])]),
    };
    for (of, keys) in foreign {
        for key in keys.iter().copied().filter(|key| reader.is_set(key)).collect::<Vec<_>>() {
            let rule = format!("has no effect where train.precision = {:?}", name_of(FORMATS, format));
            reader.report(Problem::of_key(key, rule, format!("write train.precision = {of}, or leave {key} out")));
        }
    }
    precision
}

/// Writes the keys that have a meaning for this run.
pub fn write(precision: Precision, writer: &mut Writer) {
    writer.text("precision", name_of(FORMATS, precision.stored()));
    match precision {
        Precision::Fp32(products) | Precision::Bf16(products) => writer.text("products", name_of(PRODUCTS, products)),
        Precision::Fp16(LossScaling { initial, window, hysteresis, minimum }) => {
            writer.power_of_two("initial_loss_scale", initial);
            writer.count("loss_scale_window", window);
            writer.count("loss_scale_hysteresis", hysteresis);
            writer.power_of_two("min_loss_scale", minimum);
        }
    }
}
