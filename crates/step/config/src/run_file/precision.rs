//! The keys of `[train]` that say in which numbers a run stores what it computes.

use super::reader::{Choices, Reader, name_of, short_count};
use super::run::device_beside;
use super::writer::Writer;
use crate::precision::{Format, LossScaling, Precision, Products};
use crate::problem::Problem;

const FORMATS: &Choices<Format> = &[("fp32", Format::Fp32), ("bf16", Format::Bf16), ("fp16", Format::Fp16)];

const PRODUCTS_KEY: &str = "train.products";

const PRODUCTS: &Choices<Products> = &[
    ("chained", Products::Chained),
    ("pairs", Products::Pairs),
    ("blocks16", Products::Blocks16),
    ("blocks8", Products::Blocks8),
    ("device", Products::Device),
];

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
    let products = products(reader, format);
    let (precision, foreign): (Precision, &[&str]) = match format {
        Format::Fp32 => (Precision::Fp32(products), &LOSS_SCALING_KEYS),
        Format::Bf16 => (Precision::Bf16(products), &LOSS_SCALING_KEYS),
        Format::Fp16 => (Precision::Fp16(products, scaling), &[]),
    };
    for key in foreign.iter().copied().filter(|key| reader.is_set(key)).collect::<Vec<_>>() {
        let rule = format!("has no effect where train.precision = {:?}", name_of(FORMATS, format));
        let remedy = format!("write train.precision = \"fp16\", or leave {key} out");
        reader.report(Problem::of_key(key, rule, remedy));
    }
    precision
}

/// The order of products; chained where the one that is written is not defined for `format`, which is reported.
fn products(reader: &mut Reader, format: Format) -> Products {
    let products = reader.choice(PRODUCTS_KEY, PRODUCTS, Products::Chained);
    if products.multiplies(format) {
        return products;
    }
    let formats = Format::ALL.into_iter().filter(|format| products.multiplies(*format));
    let formats = either(formats.map(|format| name_of(FORMATS, format)));
    let device = device_beside(reader);
    let orders = Products::ALL.into_iter().filter(|order| order.multiplies(format) && order.is_of(device));
    let orders = either(orders.map(Products::name));
    let rule = format!("must have train.precision = {formats}; got {:?}", name_of(FORMATS, format));
    let value = format!("{:?}", products.name());
    reader.report(Problem::of_value(PRODUCTS_KEY, value, rule, format!("use train.products = {orders}")));
    Products::Chained
}

/// `"a", "b" or "c"`.
fn either(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Writes the keys that have a meaning for this run.
pub fn write(precision: Precision, writer: &mut Writer) {
    writer.text("precision", name_of(FORMATS, precision.stored()));
    writer.text("products", name_of(PRODUCTS, precision.products()));
    match precision {
        Precision::Fp32(_) | Precision::Bf16(_) => {}
        Precision::Fp16(_, LossScaling { initial, window, hysteresis, minimum }) => {
            writer.power_of_two("initial_loss_scale", initial);
            writer.count("loss_scale_window", window);
            writer.count("loss_scale_hysteresis", hysteresis);
            writer.power_of_two("min_loss_scale", minimum);
        }
    }
}
