//! N11 and N12: the global norm counts each element of each parameter once, whoever holds it, and all stages.

use std::cell::Cell;

use config::{Parallelism, Sharding, Unit, ZeroStage};
use device::Op;
use mesh::Axis;
use program::{PeerGroup, Value};
use testkit::intercepted::{Call, intercept_calls, intercept_ops};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::{Engine, Observer, Ports, RankEngine, Setup, Start, StepReport, StopRequest};

use crate::checklist::rig::*;

/// Keeps the norms.
#[derive(Default)]
struct Norms(std::sync::Mutex<Vec<f64>>);

impl Observer for Norms {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.0.lock().expect("the only thread that reports").push(report.gradient_norm);
        StopRequest::None
    }
}

/// The norms of a run, without delivering its tensors: faulty declarations would corrupt the delivery as well.
pub fn norms(case: &Case<'_>) -> Vec<f64> {
    let setup = case.setup();
    let engine: &dyn Engine = &testkit::wrapped_engine::WrappedEngine::new(&setup, case.wrap);
    let log = Norms::default();
    let ports = Ports { start: Start::with(case.initial), ..Ports::new(case.tokens, &log) };
    train::run(&setup, engine, ports).expect("a run");
    log.0.into_inner().expect("nobody panicked")
}

/// The fault in the run.
#[derive(Clone, Copy)]
struct Fault<'a> {
    spoil: &'a (dyn Fn(&mut Setup) + Sync),
    wrap: &'a WrapRank<'a>,
}

const NONE: Fault<'static> = Fault { spoil: &|_| (), wrap: &untouched };

/// Whether the norm of the first step is that of one rank.
fn check(at: (usize, usize, usize), zero: ZeroStage, tied: bool, fault: Fault<'_>) -> Verdict {
    let (model, train) = (small_model(Style::Gpt2, tied), training(1));
    let one = norms(&Case::new(&model, degrees((1, 1, 1)), &train))[0];
    let layout = Parallelism { zero, ..degrees(at) };
    let norm = norms(&Case::new(&model, layout, &train).spoilt(fault.spoil).wrapped(fault.wrap))[0];
    let distance = (norm / one - 1.0).abs();
    // A norm is as near as the gradients are.
    verdict((distance > GRADIENT_BOUND).then(|| format!("{at:?}: norm {norm} instead of {one}, {distance:.1e} away")))
}

#[test]
fn the_norm_of_every_layout_is_that_of_one_rank() {
    for (dp, zero) in [(1, ZeroStage::Off), (2, ZeroStage::Off), (2, ZeroStage::One), (2, TWO), (2, THREE)] {
        for (tp, pp) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)] {
            for tied in [false, true] {
                assert_holds(check((dp, tp, pp), zero, tied, NONE));
            }
        }
    }
}

/// Sharding groups hold the same shards; each rank counts a part of its own.
#[test]
fn the_norm_of_sharding_groups_is_that_of_one_rank() {
    let (model, train) = (small_model(Style::Gpt2, true), training(1));
    let one = norms(&Case::new(&model, degrees((1, 1, 1)), &train))[0];
    for zero in [ZeroStage::One, THREE] {
        let layout = Parallelism { zero, shard_group: Some(2), ..degrees((4, 1, 1)) };
        let distance = (norms(&Case::new(&model, layout, &train))[0] / one - 1.0).abs();
        assert!(distance <= GRADIENT_BOUND, "{zero:?}: {distance:.1e}");
    }
}

#[test]
fn a_replicated_parameter_that_every_rank_counts_is_found() {
    let spoil = |setup: &mut Setup| {
        let segments = setup.layouts.values_mut().flat_map(|layout| &mut layout.segments);
        for segment in segments.filter(|segment| segment.param.name.contains("norm.")) {
            segment.param.sharding = Sharding::COLUMNS;
        }
    };
    assert_found(check((1, 2, 1), ZeroStage::Off, false, Fault { spoil: &spoil, ..NONE }), "(1, 2, 1): norm");
}

#[test]
fn a_tied_table_that_both_stages_count_is_found() {
    let model = small_model(Style::Gpt2, true);
    let setup = Case::new(&model, degrees((1, 1, 2)), &training(1)).setup();
    let accumulator = Value::Accumulator { unit: Unit::Table, by: Unit::Head };
    let place = setup.plan(1).extent_of_state(accumulator).expect("the table's gradient");
    let len = setup.layouts[&Unit::Table].len;
    let wrap = |coord: mesh::Coord, rank: RankEngine| {
        let counted = Cell::new(coord.along(Axis::Pp) == 0);
        intercept_ops(rank, move |device, stream, op| {
            if let Op::SquaredSum { sums, .. } = op
                && !counted.replace(true)
            {
                let x = device::Tensor::new(place.offset_bytes, 1, len, device::Dtype::F32);
                device.submit(stream, &Op::SquaredSum { x, first_element: 0, loss_scale: 1.0, sums: *sums })?;
            }
            device.submit(stream, op)
        })
    };
    assert_found(check((1, 1, 2), ZeroStage::Off, true, Fault { wrap: &wrap, ..NONE }), "(1, 1, 2): norm");
}

#[test]
fn a_shard_that_two_replicas_count_is_found() {
    // Of a unit's padded buffer each replica counts its own slice; here the second counts the first's as well.
    let model = small_model(Style::Gpt2, false);
    let setup = Case::new(&model, degrees((2, 1, 1)), &training(1)).setup();
    let unit = Unit::Layer(0);
    let accumulator = Value::Accumulator { unit, by: unit };
    let place = setup.plan(0).extent_of_state(accumulator).expect("a layer's gradient");
    let shard = setup.layouts[&unit].shard(0);
    let wrap = |coord: mesh::Coord, rank: RankEngine| {
        let counted = Cell::new(replica(coord) == 0);
        let len = shard.len();
        intercept_ops(rank, move |device, stream, op| {
            if let Op::SquaredSum { sums, .. } = op
                && !counted.replace(true)
            {
                let x = device::Tensor::new(place.offset_bytes, 1, len, device::Dtype::F32);
                device.submit(stream, &Op::SquaredSum { x, first_element: 0, loss_scale: 1.0, sums: *sums })?;
            }
            device.submit(stream, op)
        })
    };
    assert_found(check((2, 1, 1), ZeroStage::Off, false, Fault { wrap: &wrap, ..NONE }), "(2, 1, 1): norm");
}

#[test]
fn a_stage_that_the_norm_leaves_out_is_found() {
    let wrap = |coord: mesh::Coord, rank: RankEngine| {
        let is_left_out = coord.along(Axis::Pp) == 1;
        let calls = Cell::new(0);
        intercept_calls(rank, PeerGroup::WORLD, move |device, group, stream, call| {
            // The first of a step's two sums over all ranks is the norm's.
            let is_norm = calls.replace(calls.get() + 1) % 2 == 0;
            if let (Call::AllReduce(x, _), true, true) = (call, is_norm, is_left_out) {
                device.write(x, &vec![0; x.size_bytes()])?;
            }
            call.perform(group, stream)
        })
    };
    for at in [(1, 1, 2), (2, 2, 2)] {
        assert_found(check(at, ZeroStage::Off, false, Fault { wrap: &wrap, ..NONE }), "norm");
    }
}
