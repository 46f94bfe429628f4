//! N29: after some steps all copies of each tensor are the same bits, whoever holds them.

use prove::Replicas;
use prove::intercepted::{Call, GroupKind, drop_calls};
use prove::models::Style;
use prove::wrapped_engine::WrapRank;
use spec::{ModelSpec, Parallelism, ZeroStage};
use train::RankEngine;

use crate::rig::*;

fn check(at: (usize, usize, usize), zero: ZeroStage, wrap: &WrapRank<'_>) -> Verdict {
    let model = ModelSpec { qk_norm: true, ..small_model(Style::Gpt2, true) };
    let replicas = Replicas::every(2);
    let layout = Parallelism { zero, ..degrees(at) };
    Case::new(&model, layout, &training(4)).wrapped(wrap).watched(&replicas).outcome()?;
    replicas_agree(&replicas)
}

#[test]
fn copies_are_equal_after_four_steps() {
    for zero in [ZeroStage::Off, ZeroStage::One] {
        for at in [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)] {
            assert_holds(check(at, zero, &untouched));
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
        ((2, 1, 1), GroupKind::Data, "between dp 0, tp 0, pp 0 and dp 1, tp 0, pp 0"),
        ((1, 2, 1), GroupKind::Tensor, "between dp 0, tp 0, pp 0 and dp 0, tp 1, pp 0"),
        ((1, 1, 2), GroupKind::Tied, "between dp 0, tp 0, pp 0 and dp 0, tp 0, pp 1"),
    ] {
        assert_found(check(at, ZeroStage::Off, &without_sums(kind)), words);
    }
    let without_gathers =
        |_, rank: RankEngine| drop_calls(rank, GroupKind::Data, |call| matches!(call, Call::AllGather(_)));
    assert_found(check((2, 1, 1), ZeroStage::One, &without_gathers), "weights of");
}
