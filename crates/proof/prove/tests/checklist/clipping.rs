//! N13: gradients are clipped on every rank, by the same factor.

use config::TrainSpec;
use device::Op;
use mesh::Axis;
use testkit::intercepted::alter_ops;
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Whether a clipped run learns what one rank learns, with equal copies.
fn check(at: (usize, usize, usize), wrap: &WrapRank<'_>) -> (Verdict, Verdict) {
    let model = small_model(Style::Gpt2, true);
    let train = TrainSpec { clip_norm: Some(0.1), ..training(4) };
    let one = Case::new(&model, degrees((1, 1, 1)), &train).outcome().expect("one rank");
    assert!(one.norms.iter().all(|norm| *norm > 0.2), "nothing is clipped: {:?}", one.norms);
    let replicas = Replicas::every(4);
    let other = Case::new(&model, degrees(at), &train).wrapped(wrap).watched(&replicas).outcome();
    (other.and_then(|other| within_bounds(&model, &one, &other)), replicas_agree(&replicas))
}

/// One position along `axis` does not clip.
fn unclipped_at(axis: Axis, position: usize) -> impl Fn(mesh::Coord, RankEngine) -> RankEngine + Sync {
    move |coord, rank| {
        if coord.along(axis) != position {
            return rank;
        }
        alter_ops(rank, |op| {
            if let Op::ClipCoefficient { clip_norm, .. } = op {
                *clip_norm = None;
            }
        })
    }
}

#[test]
fn every_rank_clips_by_the_same_factor() {
    for at in [(1, 2, 1), (1, 1, 2), (2, 1, 1), (1, 3, 1)] {
        let (near, equal) = check(at, &untouched);
        assert_holds(near);
        assert_holds(equal);
    }
    let (near, equal) = check((1, 2, 1), &unclipped_at(Axis::Tp, 1));
    assert_found(near, "away, at most 1e-3");
    // The layer norms drift apart.
    assert_found(equal, "norm.weight differ");
    let (near, equal) = check((1, 1, 2), &unclipped_at(Axis::Pp, 1));
    assert_found(near, "away, at most 1e-3");
    assert_found(equal, "embedding.token.weight differ");
    // A replica of which the other's shards are gathered: copies agree, and are wrong.
    let (near, _) = check((2, 1, 1), &unclipped_at(Axis::DpInner, 1));
    assert_found(near, "away, at most 1e-3");
}
