//! Reductions, gathers, the tied sum and the norm are priced call by call, as the executor issues them.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, named};
use config::{Degrees, GradientSums, Parallelism, PerClass, RunConfig, Unit, UnitLayout, ZeroStage};
use device::SUM_WORDS;
use mesh::{AxisSet, Mesh, PlacementOrder, Rank};
use program::{Footprint, GradientAxes, GroupCall, Partner, PeerGroup, UnitCalls};
use sim::{GroupShape, RecordedUnits, StepCosts, StepShape, collective_ns};

/// Two sharding groups of four replicas, tensor parallelism in a node, two stages.
fn layout(zero: ZeroStage) -> Parallelism {
    let parallelism = RunConfig::quick_start().parallelism;
    let shard_group = (zero != ZeroStage::Off).then_some(4);
    Parallelism { degrees: Degrees { dp: 8, cp: 1, tp: 2, pp: 2 }, zero, shard_group, ..parallelism }
}

fn costs(cluster: &Cluster, parallelism: &Parallelism, sums: GradientSums) -> StepCosts {
    let RunConfig { model, train, .. } = RunConfig::quick_start();
    let (placement, precision) = (PlacementOrder::default(), train.precision);
    let (averages, optimizer) = (config::Averages::Off, config::Optimizer::AdamW);
    let footprints = PerClass::new(&model.classes(), |_| Footprint { output_bytes: 1 << 20, ..Footprint::default() });
    let shape = StepShape {
        model: &model,
        parallelism,
        placement,
        precision,
        sums,
        averages,
        optimizer,
        footprints: &footprints,
    };
    StepCosts::new(cluster, None, &shape, &RecordedUnits::default()).unwrap()
}

fn price(cluster: &Cluster, mesh: &Mesh, call: &GroupCall, element_bytes: usize) -> u64 {
    let (node, placement) = (cluster.node.accelerators, PlacementOrder::default());
    let group = match call.group {
        PeerGroup::Along(axes) => GroupShape::new(mesh, axes, placement, node),
        PeerGroup::Ends => GroupShape::pair(mesh, Rank(0), Rank(mesh.ranks_per_stage()), placement, node),
    };
    let (operation, tree) = call.collective.operation();
    collective_ns(cluster, group, operation, tree, (call.elements.len() * element_bytes) as f64).round() as u64
}

#[test]
fn each_call_of_the_list_is_priced() {
    let cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    let model = RunConfig::quick_start().model;
    for (zero, sums, bytes) in [
        (ZeroStage::Off, GradientSums::Single, 4),
        (ZeroStage::One, GradientSums::Single, 4),
        (ZeroStage::Off, GradientSums::Exact, 8),
        (ZeroStage::One, GradientSums::Exact, 8),
    ] {
        let parallelism = layout(zero);
        let (costs, mesh) = (costs(&cluster, &parallelism, sums), parallelism.mesh().unwrap());
        for unit in [Unit::Table, Unit::Layer(0), Unit::Head] {
            let layout = config::UnitLayout::of(&model, unit, &parallelism);
            let updated = if zero == ZeroStage::Off { 0..layout.padded_len() } else { layout.part(4, 0) };
            let calls = UnitCalls { parallelism: &parallelism, layout: &layout, updated };
            let axes = GradientAxes::declared(layout.segments.iter().map(|segment| &segment.param), &parallelism);
            let list = calls.reduction(&axes);
            let reduced: u64 = list.iter().map(|call| price(&cluster, &mesh, call, bytes)).sum();
            let difference = costs.state(unit).reduce_ns.abs_diff(reduced);
            assert!(difference <= 1, "{zero:?}, {sums:?}, {unit}: {difference} ns for {list:?}");
            assert_eq!(costs.state(unit).gather_ns, price(&cluster, &mesh, &calls.gather(), 4));
            if unit == Unit::Table {
                let ends = Partner::Ends { embedding: 0, head: 1 };
                assert_eq!(costs.tied_ns(ends), price(&cluster, &mesh, &calls.tied(), bytes));
                assert!(costs.tied_ns(Partner::None) < costs.tied_ns(ends), "no link between one rank and itself");
            }
        }
        let norm: u64 = GroupCall::norm(SUM_WORDS).iter().map(|call| price(&cluster, &mesh, call, 8)).sum();
        assert_eq!(costs.norm_ns(std::iter::empty()), norm);
        assert_eq!(GroupCall::norm(SUM_WORDS)[0].group, PeerGroup::Along(AxisSet::ALL));
    }
}

/// In single precision two moments pass the link, in bf16 the master weights as well.
#[test]
fn copies_of_offloaded_state_are_priced_by_the_link_to_the_host() {
    let mut cluster = Cluster::from_toml(named("a100-80g-dgx").unwrap()).unwrap();
    let parallelism = layout(ZeroStage::One);
    let RunConfig { model, .. } = RunConfig::quick_start();
    let elements = UnitLayout::of(&model, Unit::Layer(0), &parallelism).part(4, 0).len() as f64;
    for (host_link_gb_per_s, rate) in [(Some(50.0), 50.0), (None, 25.0)] {
        cluster.accelerator.host_link_gb_per_s = host_link_gb_per_s;
        let copy_ns = costs(&cluster, &parallelism, GradientSums::Single).state(Unit::Layer(0)).copy_ns;
        assert_eq!(copy_ns, (2.0 * 4.0 * elements / rate).round() as u64);
    }
}
