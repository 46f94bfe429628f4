//! Layers of different widths: each has the bytes, the passes and the costs of a model whose layers all have its width.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use cluster::{Cluster, named};
use config::{Degrees, Format, GradientSums, ModelSpec, Parallelism, RunConfig, Unit, ZeroStage};
use device::Dtype;
use mesh::PlacementOrder;
use model::{MicrobatchShape, TensorParallel};
use program::{Footprint, PassKind, Sizes, State, Value};
use record::{RecordCase, UnitRecords};
use sim::{PassCost, RecordedUnits, StateCost, StepCosts, StepShape, UnitWork};

use super::training_case::training_case;

const TP: usize = 2;

/// Repeated, and in no order.
const WIDTHS: [usize; 6] = [512, 128, 512, 1024, 128, 64];

/// Everything that plans and predictions read of one layer.
#[derive(Debug, PartialEq)]
struct OfLayer {
    footprint: Footprint,
    state_bytes: [usize; 3],
    work: UnitWork,
    passes: [PassCost; 4],
    state: StateCost,
}

fn layers(model: &ModelSpec) -> Vec<OfLayer> {
    let config = RunConfig::quick_start();
    let parallelism =
        Parallelism { degrees: Degrees { dp: 4, cp: 1, tp: TP, pp: 1 }, zero: ZeroStage::One, ..config.parallelism };
    let records = UnitRecords::new(RecordCase {
        tp: TensorParallel { size: TP, position: 0 },
        stored: Dtype::F32,
        ..training_case(model, MicrobatchShape::whole(1, model.context))
    })
    .unwrap();
    let footprints = records.footprints();
    let (stored, sums) = (Format::Fp32, GradientSums::Single);
    let sizes = Sizes::new(model, &parallelism, footprints.clone(), stored, sums, State::Training);
    let units = RecordedUnits::new(&records, None);
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    let precision = config.train.precision;
    let placement = PlacementOrder::default();
    let (averages, optimizer) = (config::Averages::Off, config::Optimizer::AdamW);
    let shape = StepShape {
        model,
        parallelism: &parallelism,
        placement,
        precision,
        sums,
        averages,
        optimizer,
        footprints: &footprints.units,
    };
    let costs = StepCosts::new(&cluster, None, &shape, &units).unwrap();
    let of = |layer| OfLayer {
        footprint: *footprints.units.of(layer),
        state_bytes: [Value::Params(layer), Value::Gathered(layer), Value::FirstMoment(layer)]
            .map(|value| sizes.bytes(value)),
        work: units.units.of(layer).clone(),
        passes: PassKind::ALL.map(|pass| costs.pass(layer, pass)),
        state: costs.state(layer),
    };
    (0..model.num_layers as u32).map(Unit::Layer).map(of).collect()
}

#[test]
fn layers_are_those_of_models_of_their_width() {
    let model = RunConfig::quick_start().model;
    let mixed = layers(&ModelSpec { ffn_hidden_of_layers: Some(WIDTHS.to_vec()), ..model.clone() });
    for (layer, width) in WIDTHS.into_iter().enumerate() {
        let equal = layers(&ModelSpec { ffn_hidden: width, ..model.clone() });
        assert_eq!(mixed[layer], equal[layer], "layer {layer} of width {width}");
    }
    assert_ne!(mixed[0], mixed[1], "wide and narrow");
}

/// A list of equal widths is the model without it.
#[test]
fn equal_widths_change_nothing() {
    let model = RunConfig::quick_start().model;
    let listed = ModelSpec { ffn_hidden_of_layers: Some(vec![model.ffn_hidden; model.num_layers]), ..model.clone() };
    assert_eq!(listed.classes(), model.classes());
    assert_eq!(layers(&listed), layers(&model));
}
