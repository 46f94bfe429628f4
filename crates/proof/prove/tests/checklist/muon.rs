//! Muon on every layout is Muon on one rank: matrices are whole when they are orthogonalised, whatever is sharded.

use config::{Degrees, ModelSpec, Muon, MuonScale, Optimizer, Parallelism, Precision, Products, TrainSpec, ZeroStage};
use device::Op;
use program::{Instr, PeerGroup};
use testkit::intercepted::{Call, alter_ops, drop_calls};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

fn by_muon(scale: MuonScale, train: TrainSpec) -> TrainSpec {
    TrainSpec { optimizer: Optimizer::Muon(Muon { momentum: 0.9, scale }), ..train }
}

fn model() -> ModelSpec {
    still_model(Style::Llama, false)
}

fn case<'a>(parallelism: Parallelism, train: &TrainSpec) -> Case<'a> {
    Case::new(&model(), parallelism, train)
}

#[test]
fn layouts_of_the_same_order_have_the_same_bits() {
    let bf16 = TrainSpec { precision: Precision::Bf16(Products::Chained), ..training(3) };
    for (scale, train) in [(MuonScale::AdamW, training(3)), (MuonScale::Shape, bf16)] {
        let train = by_muon(scale, train);
        let whole = case(Parallelism { zero: ZeroStage::Off, ..degrees((2, 1, 1)) }, &train).outcome().expect("runs");
        for (zero, pp) in [(ZeroStage::Off, 2), (ZeroStage::One, 1), (ZeroStage::One, 2), (TWO, 1), (THREE, 2)] {
            let other = case(Parallelism { zero, ..degrees((2, 1, pp)) }, &train).outcome().expect("runs");
            assert_holds(same_bits(&whole, &other));
        }
        let split = case(Parallelism { zero: ZeroStage::Off, ..degrees((2, 2, 1)) }, &train).outcome().expect("runs");
        let sharded = case(Parallelism { zero: THREE, ..degrees((2, 2, 1)) }, &train).outcome().expect("runs");
        assert_holds(same_bits(&split, &sharded));
    }
}

/// Whether a layout learns what one rank learns.
fn check(parallelism: Parallelism, wrap: &WrapRank<'_>) -> Verdict {
    let train = by_muon(MuonScale::AdamW, training(3));
    let one = case(degrees((1, 1, 1)), &train).outcome().expect("one rank");
    let other = case(parallelism, &train).wrapped(wrap).outcome();
    other.and_then(|other| within_bounds(&model(), &one, &other))
}

#[test]
fn every_layout_learns_what_one_rank_learns() {
    let grouped = Parallelism { shard_group: Some(2), ..degrees((4, 1, 1)) };
    let plain = degrees((1, 1, 1));
    let shared = Parallelism { degrees: Degrees { cp: 2, ..plain.degrees }, zero: ZeroStage::One, ..plain };
    for parallelism in [degrees((1, 2, 1)), degrees((1, 3, 2)), degrees((4, 2, 1)), grouped, shared] {
        assert_holds(check(parallelism, &untouched));
    }
}

/// Gathers of updates are those of the whole flat buffer, and of blocks of matrices, in the optimizer's step.
#[test]
fn matrices_that_are_not_gathered_are_found() {
    let of_shards = |_, rank: RankEngine| {
        let is_gather = |call: &Call| matches!(call, Call::AllGather(x) if x.dtype == device::Dtype::F32);
        drop_calls(rank, PeerGroup::SHARDS, is_gather)
    };
    assert_found(check(degrees((2, 1, 1)), &of_shards), "weight");
    let of_tensors =
        |_, rank: RankEngine| drop_calls(rank, PeerGroup::TENSOR, |call: &Call| matches!(call, Call::AllGather(_)));
    assert_found(check(degrees((1, 2, 1)), &of_tensors), "weight");
}

#[test]
fn momentum_that_is_lost_is_found() {
    let forgets = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::ScaledSum { keep, .. } = op
                && *keep == 0.9
            {
                *keep = 0.0;
            }
        })
    };
    assert_found(check(degrees((1, 1, 1)), &forgets), "weight");
}

/// No second moments of matrices, and scratch for the largest of them: nothing more is planned.
#[test]
fn plans_count_what_muon_needs() {
    let adamw = case(degrees((2, 2, 1)), &training(3)).setup();
    let muon = case(degrees((2, 2, 1)), &by_muon(MuonScale::AdamW, training(3))).setup();
    let layer = config::Unit::Layer(0);
    let layout = &muon.layouts[&layer];
    let bytes = |setup: &train::Setup, value| setup.plan(0).extent_of_state(value).map_or(0, |extent| extent.len_bytes);
    let (first, second) = (program::Value::FirstMoment(layer), program::Value::SecondMoment(layer));
    assert_eq!(bytes(&muon, first), bytes(&adamw, first));
    let matrices: usize =
        muon.train.optimizer.muon_matrices(layout).iter().map(|(matrix, _)| matrix.range().len()).sum();
    assert_eq!(bytes(&muon, second), 4 * (layout.padded_len() - matrices).min(layout.padded_len() / 2));
    assert!(bytes(&muon, second) < bytes(&adamw, second));
    let updates = muon.program(0).instrs.iter().filter(|instr| matches!(instr, Instr::OptimizerStep { .. })).count();
    assert_eq!(updates, muon.program(0).view.parameter_units().count());
}
