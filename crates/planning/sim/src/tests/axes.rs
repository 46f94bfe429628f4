//! A recorded collective is priced over the axes that its recording names.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, named};
use config::{Degrees, Parallelism, PerClass, RunConfig, UnitAxes, UnitClass};
use device::{SumTree, Write};
use mesh::{Axis, AxisSet, PlacementOrder};
use model::{MicrobatchShape, TensorParallel};
use program::{Footprint, PassKind};
use record::{RecordCase, UnitRecords};
use sim::{GroupShape, RecordedUnits, StepCosts, StepShape, collective_ns};

use super::training_case::training_case;

/// Two tensor-parallel ranks in a node, eight replicas over several.
const DEGREES: Degrees = Degrees { dp: 8, cp: 1, tp: 2, pp: 1 };

#[test]
fn collectives_of_a_layer_cost_what_their_axes_do() {
    let RunConfig { model, parallelism, train, .. } = RunConfig::quick_start();
    let parallelism = Parallelism { degrees: DEGREES, ..parallelism };
    let records = UnitRecords::new(RecordCase {
        tp: TensorParallel { size: DEGREES.tp, position: 0 },
        write: Write::Assign,
        ..training_case(&model, MicrobatchShape::whole(2, 64))
    });
    let recorded = RecordedUnits::new(&records.unwrap(), None);
    let calls = recorded.units[UnitClass::Layer(0)].forward.collectives.clone();
    assert!(!calls.is_empty());
    assert!(calls.iter().all(|call| call.axes == parallelism.tensor_axes()), "{calls:?}");

    let (cluster, mesh) = (Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap(), parallelism.mesh().unwrap());
    let footprints = PerClass::new(&model.classes(), |_| Footprint { output_bytes: 1 << 20, ..Footprint::default() });
    let shape = StepShape {
        model: &model,
        parallelism: &parallelism,
        placement: PlacementOrder::default(),
        precision: train.precision,
        sums: train.sums,
        averages: train.averages(),
        optimizer: train.optimizer,
        footprints: &footprints,
    };
    let priced = |axes: AxisSet| {
        let mut units = recorded.clone();
        units.units[UnitClass::Layer(0)].forward.collectives.iter_mut().for_each(|call| call.axes = axes);
        let costs = StepCosts::new(&cluster, None, &shape, &units).unwrap();
        costs.pass(config::Unit::Layer(0), PassKind::Forward).collectives_ns
    };
    let expected = |axes: AxisSet| -> u64 {
        let group = GroupShape::new(&mesh, axes, PlacementOrder::default(), cluster.node.accelerators);
        calls
            .iter()
            .map(|call| {
                collective_ns(&cluster, group, call.operation, SumTree::RANK_ORDER, call.bytes as f64).round() as u64
            })
            .sum()
    };
    for axes in [parallelism.tensor_axes(), UnitAxes::TOKENS] {
        assert_eq!(priced(axes), expected(axes), "{axes}");
    }
    assert!(priced(UnitAxes::TOKENS) > 2 * priced(parallelism.tensor_axes()), "between nodes");
    assert_eq!(priced(AxisSet::of(Axis::Cp)), 0, "a group of one");
}
