//! A reduction goes over exactly the axes that its instruction carries, which are those that were verified.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::collections::BTreeMap;

use comm::Operation;
use config::{RunConfig, Unit};
use device::{ArenaSize, Numerics};
use mesh::{Axis, AxisSet, Rank};
use program::{GradientAxes, Instr};
use train::{Engine, MetaEngine, SequenceBuffers, Setup, Start, TokenSource};

struct NoTokens;

impl TokenSource for NoTokens {
    fn fill(&self, _step: u32, _sequence: u64, _buffers: SequenceBuffers<'_>) {}
}

/// dp 4 in sharding groups of 2, tp 2, with norms that see a run of the tokens.
fn setup(zero: u32) -> Setup {
    let overrides = [
        "model.vocabulary=1031",
        "train.sequence_length=16",
        "train.global_batch=4",
        "parallelism.dp=4",
        "parallelism.tp=2",
        "parallelism.pp=1",
        "parallelism.microbatch_size=1",
        "parallelism.sequence_parallel=true",
    ];
    let mut overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    overrides.push(format!("parallelism.zero={zero}"));
    if zero > 0 {
        overrides.push("parallelism.shard_group=2".into());
    }
    let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &overrides).unwrap();
    Setup::new(model, parallelism, train).unwrap()
}

/// Bytes that rank 0 sends by operation where the reduction of a layer's gradients has only those of its axes that are
/// in `kept`.
fn sent(setup: &Setup, kept: AxisSet) -> BTreeMap<Operation, u64> {
    let engine = MetaEngine::new(setup.groups());
    let ends = engine.open(Rank(0), ArenaSize::of_device(0), Numerics::SINGLE).unwrap();
    let coord = setup.mesh.origin();
    let mut rank = train::Worker::open(setup, coord, &NoTokens, Start::Seed, ends).unwrap();
    let is_of_layer = |instr: &Instr| matches!(instr, Instr::ReduceGrads { unit: Unit::Layer(0), .. });
    let at = setup.program(0).instrs.iter().position(is_of_layer).unwrap();
    let Instr::ReduceGrads { unit, by, axes } = setup.program(0).instrs[at] else { panic!("no reduction") };
    let axes = GradientAxes::new(axes.as_slice().iter().map(|axes| axes.intersection(kept)));
    rank.position.at = at;
    engine.take_record(Rank(0));
    rank.execute(Instr::ReduceGrads { unit, by, axes }).unwrap();
    let record = engine.take_record(Rank(0));
    record
        .sent
        .into_iter()
        .filter(|(_, sent)| sent.bytes > 0)
        .map(|(operation, sent)| (operation, sent.bytes))
        .collect()
}

#[test]
fn each_axis_of_a_reduction_is_one_collective() {
    for zero in 0..4 {
        let setup = setup(zero);
        let only = |axes| sent(&setup, axes);
        // Ranks that share sequences are in the group of the shards.
        let of_shards = AxisSet::of(Axis::DpInner).with(Axis::Cp);
        let (tensor, inner, outer) = (only(AxisSet::of(Axis::Tp)), only(of_shards), only(AxisSet::of(Axis::DpOuter)));
        assert_eq!(sent(&setup, AxisSet::NONE), BTreeMap::new(), "zero {zero}");
        assert_eq!(tensor.keys().collect::<Vec<_>>(), [&Operation::AllReduce], "zero {zero}");
        let over_data = if zero == 0 { Operation::AllReduce } else { Operation::ReduceScatter };
        assert_eq!(inner.keys().collect::<Vec<_>>(), [&over_data], "zero {zero}");
        // Without shards, all of dp is one group.
        let over_groups: &[Operation] = if zero == 0 { &[] } else { &[Operation::AllReduce] };
        assert_eq!(outer.keys().copied().collect::<Vec<_>>(), over_groups, "zero {zero}");
        let mut sum: BTreeMap<Operation, u64> = BTreeMap::new();
        for (operation, bytes) in [tensor, inner, outer].into_iter().flatten() {
            *sum.entry(operation).or_default() += bytes;
        }
        assert_eq!(sent(&setup, AxisSet::ALL), sum, "zero {zero}");
    }
}
