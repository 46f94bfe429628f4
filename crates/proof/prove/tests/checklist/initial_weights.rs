//! N24: initial weights are the same bits in every layout.

use config::ModelSpec;
use device::Op;
use mesh::Axis;
use testkit::intercepted::alter_ops;
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Whether the weights before the first step are those of one rank.
fn check(style: Style, at: (usize, usize, usize), wrap: &WrapRank<'_>) -> Verdict {
    let model = ModelSpec { num_layers: 4, ..small_model(style, style == Style::Gpt2) };
    let train = training(0);
    let one = Case::new(&model, degrees((1, 1, 1)), &train).outcome().expect("one rank");
    assert!(!one.weights.is_empty(), "weights are delivered");
    Case::new(&model, degrees(at), &train).wrapped(wrap).outcome().and_then(|other| same_bits(&one, &other))
}

#[test]
fn initial_weights_are_the_same_bits_in_every_layout() {
    for style in [Style::Gpt2, Style::Llama] {
        for at in [(2, 1, 1), (8, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1), (1, 6, 1), (1, 1, 2), (1, 1, 4), (2, 2, 2)] {
            assert_holds(check(style, at, &untouched));
        }
    }
}

#[test]
fn initial_weights_that_depend_on_the_rank_are_found() {
    let same_on_every_rank = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::InitializeNormal { first_row, first_col, .. } = op {
                (*first_row, *first_col) = (0, 0);
            }
        })
    };
    assert_found(check(Style::Gpt2, (1, 2, 1), &same_on_every_rank), "bits differ");
    let seed_by_stage = |coord: mesh::Coord, rank: RankEngine| {
        let stage = coord.along(Axis::Pp) as u64;
        alter_ops(rank, move |op| {
            if let Op::InitializeNormal { seed, .. } = op {
                *seed ^= stage;
            }
        })
    };
    assert_found(check(Style::Llama, (1, 1, 2), &seed_by_stage), "bits differ");
    let fan_of_the_shard = |_, rank: RankEngine| {
        let size = rank.communicators.over(Axis::Tp).unwrap().size() as f32;
        alter_ops(rank, move |op| {
            if let Op::InitializeNormal { std, .. } = op {
                *std *= size.sqrt();
            }
        })
    };
    assert_found(check(Style::Llama, (1, 4, 1), &fan_of_the_shard), "bits differ");
}
