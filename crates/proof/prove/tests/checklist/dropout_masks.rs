//! N25: dropout masks are functions of global indices: equal where activations are replicated, distinct where they are
//! sharded or of other sequences, the same in every layout.

use config::ModelSpec;
use mesh::Axis;
use testkit::intercepted::{Masked, alter_ops, dropout_key};
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Half of everything is dropped: another mask is another gradient.
fn model() -> ModelSpec {
    ModelSpec { dropout: 0.5, attention_dropout: 0.5, ..small_model(Style::Gpt2, true) }
}

/// Whether the layout learns what one rank learns, and whether its copies agree.
fn check(at: (usize, usize, usize), wrap: &WrapRank<'_>) -> (Verdict, Verdict) {
    let (model, train) = (model(), training(2));
    let one = Case::new(&model, degrees((1, 1, 1)), &train).outcome().expect("one rank");
    let replicas = Replicas::every(1);
    let other = Case::new(&model, degrees(at), &train).wrapped(wrap).watched(&replicas).outcome();
    (other.and_then(|other| within_bounds(&model, &one, &other)), replicas_agree(&replicas))
}

#[test]
fn masks_are_the_same_in_every_layout() {
    for at in [(2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 2), (2, 2, 2)] {
        let (near, equal) = check(at, &untouched);
        assert_holds(near);
        assert_holds(equal);
    }
}

#[test]
fn masks_that_are_equal_where_they_must_differ_are_found() {
    let same_for_all_heads = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Some((key, Masked::Probabilities)) = dropout_key(op) {
                key.first_channel = 0;
            }
        })
    };
    assert_found(check((1, 2, 1), &same_for_all_heads).0, "the gradient of");
    let same_on_all_replicas = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Some((key, _)) = dropout_key(op) {
                key.first_token %= 4 * 8;
            }
        })
    };
    assert_found(check((2, 1, 1), &same_on_all_replicas).0, "the gradient of");
    let same_in_all_steps = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Some((key, _)) = dropout_key(op) {
                key.step = 0;
            }
        })
    };
    assert_found(check((1, 1, 2), &same_in_all_steps).0, "a loss is");
}

#[test]
fn masks_that_differ_where_they_must_be_equal_are_found() {
    let by_rank = |coord: mesh::Coord, rank: RankEngine| {
        let position = coord.along(Axis::Tp) as u64;
        alter_ops(rank, move |op| {
            if let Some((key, Masked::Residual)) = dropout_key(op) {
                key.seed ^= position;
            }
        })
    };
    let (near, equal) = check((1, 2, 1), &by_rank);
    assert_found(near, "the gradient of");
    assert_found(equal, "norm.weight differ");
}
