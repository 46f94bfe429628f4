//! N29: after some steps all copies of each tensor are the same bits, whoever holds them.

use config::{ModelSpec, Parallelism, ZeroStage};
use program::PeerGroup;
use testkit::intercepted::{Call, drop_calls};
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

fn check(at: (usize, usize, usize), zero: ZeroStage, wrap: &WrapRank<'_>) -> Verdict {
    check_layout(Parallelism { zero, ..degrees(at) }, wrap)
}

fn check_layout(layout: Parallelism, wrap: &WrapRank<'_>) -> Verdict {
    let model = ModelSpec { qk_norm: config::QkNorm::Heads, ..small_model(Style::Gpt2, true) };
    let replicas = Replicas::every(2);
    Case::new(&model, layout, &training(4)).wrapped(wrap).watched(&replicas).outcome()?;
    replicas_agree(&replicas)
}

#[test]
fn copies_are_equal_after_four_steps() {
    for zero in [ZeroStage::Off, ZeroStage::One, TWO] {
        for at in [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)] {
            assert_holds(check(at, zero, &untouched));
        }
    }
}

/// With every parameter sharded, copies are where sharding groups, stages or tensor-parallel ranks hold the same.
#[test]
fn shards_of_groups_are_equal_after_four_steps() {
    for at in [(4, 1, 1), (4, 2, 1), (4, 1, 2)] {
        for zero in [ZeroStage::One, THREE] {
            assert_holds(check_layout(Parallelism { zero, shard_group: Some(2), ..degrees(at) }, &untouched));
        }
    }
}

#[test]
fn copies_that_drift_apart_are_found() {
    let without_sums = |kind| {
        let is_sum = |call: &Call| matches!(call, Call::AllReduce(..));
        move |_: mesh::Coord, rank: RankEngine| drop_calls(rank, kind, is_sum)
    };
    for (at, kind, words) in [
        ((2, 1, 1), PeerGroup::SHARDS, "between dp 0, tp 0, pp 0 and dp 1, tp 0, pp 0"),
        ((1, 2, 1), PeerGroup::TENSOR, "between dp 0, tp 0, pp 0 and dp 0, tp 1, pp 0"),
        ((1, 1, 2), PeerGroup::Ends, "between dp 0, tp 0, pp 0 and dp 0, tp 0, pp 1"),
    ] {
        assert_found(check(at, ZeroStage::Off, &without_sums(kind)), words);
    }
    let without_gathers =
        |_, rank: RankEngine| drop_calls(rank, PeerGroup::SHARDS, |call| matches!(call, Call::AllGather(_)));
    assert_found(check((2, 1, 1), ZeroStage::One, &without_gathers), "weights of");
    let grouped = Parallelism { zero: THREE, shard_group: Some(2), ..degrees((4, 1, 1)) };
    let found = check_layout(grouped, &without_sums(PeerGroup::REPLICAS));
    assert_found(found, "between dp 0, tp 0, pp 0 and dp 2, tp 0, pp 0");
}
