//! N2: a parameter that all tensor-parallel ranks hold but apply to their own heads has its gradient summed over them.

use config::ModelSpec;
use program::PeerGroup;
use testkit::intercepted::{Call, drop_calls};
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// These gradients come through the softmax, whose backward pass subtracts a mean from each score's gradient and loses
/// digits by it: distances of 1.1e-6 were measured. The fault is of the order of one.
const BOUND: f64 = 1e-5;

fn model() -> ModelSpec {
    ModelSpec { qk_norm: config::QkNorm::Heads, ..small_model(Style::Llama, false) }
}

fn check(wrap: &WrapRank<'_>) -> (Verdict, Verdict) {
    let (model, train) = (model(), training(3));
    let one = Case::new(&model, degrees((1, 1, 1)), &train).outcome().expect("one rank");
    let replicas = Replicas::every(3);
    let two = Case::new(&model, degrees((1, 2, 1)), &train).wrapped(wrap).watched(&replicas).outcome();
    (two.and_then(|two| within(BOUND, &model, &one, &two)), replicas_agree(&replicas))
}

#[test]
fn gradients_of_norms_per_head_are_summed_over_tensor_parallelism() {
    let (near, equal) = check(&untouched);
    assert_holds(near);
    assert_holds(equal);
    // The sums over tensor parallelism of vectors as long as a head is wide: of the norms of queries and of keys.
    let width = model().head_dim;
    let unsummed = |_, rank: RankEngine| {
        drop_calls(
            rank,
            PeerGroup::TENSOR,
            move |call| matches!(call, Call::AllReduce(x, _) if (x.rows, x.cols) == (1, width)),
        )
    };
    let (near, equal) = check(&unsummed);
    assert_found(near, "query_norm");
    assert_found(equal, "query_norm");
}
