//! Sliding windows: the operations, bytes and seconds of a layer's attention are those of the keys that its tokens see.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use cluster::{Cluster, named};
use config::{GradientSums, LocalAttention, ModelSpec, Reach, RunConfig, Unit, flops_per_token, unique_parameters};
use device::{Dtype, Op};
use mesh::PlacementOrder;
use model::{MicrobatchShape, TensorParallel};
use program::PassKind;
use record::{RecordCase, UnitRecords};
use sim::{RecordedUnits, StepCosts, StepShape};

use super::training_case::training_case;

const WINDOW: usize = 48;
const SEQUENCES: usize = 2;

/// The quick start's model; where it has windows, every third layer has none.
fn model(window: Option<usize>) -> ModelSpec {
    let pattern = vec![Reach::Local, Reach::Local, Reach::Global];
    let local_attention = window.map(|window| LocalAttention { window, pattern, rotary_base: None });
    ModelSpec { local_attention, ..RunConfig::quick_start().model }
}

fn records(model: &ModelSpec) -> UnitRecords<'_> {
    UnitRecords::new(RecordCase {
        tp: TensorParallel { size: 2, position: 0 },
        stored: Dtype::F32,
        ..training_case(model, MicrobatchShape::whole(SEQUENCES, model.context))
    })
    .unwrap()
}

/// Multiply-adds of attention in each pass of a layer.
fn attention(records: &UnitRecords<'_>, layer: u32) -> Vec<u64> {
    let of_pass = |pass: &record::UnitRecord| {
        let is_attention = |op: &&Op| matches!(op, Op::Attention { .. } | Op::AttentionBackward { .. });
        pass.record.submitted.iter().filter(is_attention).map(|op| op.cost().multiply_adds).sum()
    };
    records.units().of(Unit::Layer(layer)).iter().map(of_pass).collect()
}

/// Pairs of a query and a visible key, one by one.
fn pairs(length: usize, window: usize) -> u64 {
    (0..length).map(|place| (place + 1).min(window) as u64).sum::<u64>() * SEQUENCES as u64
}

#[test]
fn attention_counts_the_keys_of_its_windows() {
    let (windows, plain) = (model(Some(WINDOW)), model(None));
    let (of_windows, of_plain) = (records(&windows), records(&plain));
    let width = (plain.query_width() / 2) as u64;
    for layer in 0..plain.num_layers as u32 {
        let window = if layer % 3 == 2 { plain.context } else { WINDOW };
        let seen = pairs(plain.context, window) * width;
        // Two products forward, five backward.
        assert_eq!(attention(&of_windows, layer), [2 * seen, 0, 5 * seen, 0], "layer {layer}");
        let all = pairs(plain.context, plain.context) * width;
        assert_eq!(attention(&of_plain, layer), [2 * all, 0, 5 * all, 0], "layer {layer}");
    }
}

/// Of a microbatch's inputs, the intervals of windows come on top; a layer keeps as much with windows as without.
#[test]
fn memory_has_the_intervals_of_windows_alone_on_top() {
    let (windows, plain) = (model(Some(WINDOW)), model(None));
    let [with, without] = [&windows, &plain].map(|model| records(model).footprints());
    assert_eq!(with.batch_bytes - without.batch_bytes, SEQUENCES * plain.context * 2 * 4);
    for layer in (0..plain.num_layers as u32).map(Unit::Layer) {
        assert_eq!(with.units.of(layer), without.units.of(layer), "{layer}");
    }
}

#[test]
fn layers_with_windows_take_less_time() {
    let config = RunConfig::quick_start();
    let windows = model(Some(WINDOW));
    let records = records(&windows);
    let units = RecordedUnits::new(&records, None);
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    let footprints = records.footprints().units.clone();
    let shape = StepShape {
        model: &windows,
        parallelism: &config.parallelism,
        placement: PlacementOrder::default(),
        precision: config.train.precision,
        averages: config::Averages::Off,
        optimizer: config::Optimizer::AdamW,
        sums: GradientSums::Single,
        footprints: &footprints,
    };
    let costs = StepCosts::new(&cluster, None, &shape, &units).unwrap();
    let [forward, _, backward, _] = PassKind::ALL;
    for pass in [forward, backward] {
        let of = |layer| costs.pass(Unit::Layer(layer), pass);
        assert_eq!(of(0), of(1));
        assert_ne!(of(1), of(2), "a layer that sees everything takes longer");
    }
}

/// `6 N`, and `12 h` for each layer and token that it sees.
#[test]
fn the_operations_of_a_token_count_windows() {
    let (windows, length) = (model(Some(WINDOW)), 128);
    let seen = (4 * WINDOW + 2 * length) as f64;
    let expected = 6.0 * unique_parameters(&windows) as f64 + 12.0 * windows.query_width() as f64 * seen;
    assert_eq!(flops_per_token(&windows, length), expected);
}
