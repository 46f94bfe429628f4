//! N5 and N6: mistakes in gradients of experts that tensor-parallel ranks divide, and of what is before them.

use device::{ExpertOp, Op, Orientation, Write};
use mesh::{Axis, Coord};
use prove::outcome_of;
use testkit::intercepted::intercept_ops;
use testkit::models::{plain_layout, proof_text};
use testkit::wrapped_engine::{WrapRank, WrappedEngine};
use train::RankEngine;

use crate::experts::rig::{broken, layout, model, outcome, training};

/// How runs of experts over tp, and over dp and tp, break their promise to one rank where their ranks are wrapped.
fn found(wrap: &WrapRank<'_>) -> [Vec<String>; 2] {
    let model = model(|_| {});
    let one = layout(&model, plain_layout(1, 1, 1, 2), training());
    let whole = outcome(&one);
    [plain_layout(1, 2, 1, 2), plain_layout(2, 2, 1, 2)].map(|parallelism| {
        let many = layout(&model, parallelism, training());
        let setup = many.setup().unwrap();
        let wrapped = outcome_of(&setup, &WrappedEngine::new(&setup, wrap), &proof_text()).unwrap();
        broken([&one, &many], [&whole, &wrapped]).1
    })
}

#[test]
fn divided_experts_learn_what_whole_ones_learn() {
    let none: [Vec<String>; 2] = [vec![], vec![]];
    assert_eq!(found(&|_, rank| rank), none);
}

/// Gradients of experts twice as large, as a sum over the ranks that divide experts makes them.
#[test]
fn gradients_that_are_summed_over_the_ranks_of_experts_are_found() {
    let twice = |_: Coord, rank: RankEngine| {
        intercept_ops(rank, |device, stream, op| {
            device.submit(stream, op)?;
            let Op::Experts(ExpertOp::MatMul { orientation: Orientation::Tn, a, b, out, rows, tokens, .. }) = *op
            else {
                return Ok(());
            };
            let (orientation, write) = (Orientation::Tn, Write::Accumulate);
            device.submit(stream, &ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into())
        })
    };
    let found = found(&twice);
    let is_missed = |faults: &Vec<String>| faults.iter().all(|fault| !fault.contains("experts."));
    assert!(!found.iter().any(is_missed), "{found:?}");
}

/// Everything before experts misses the share of one rank's experts.
#[test]
fn a_share_of_experts_that_nothing_before_them_receives_is_found() {
    let lost = |coord: Coord, rank: RankEngine| {
        if coord.along(Axis::Tp) == 0 {
            return rank;
        }
        intercept_ops(rank, |device, stream, op| {
            // Without weights it is the sum of gradients.
            if let Op::Experts(ExpertOp::CombineRows { weights: None, out, .. }) = *op {
                return device.submit(stream, &Op::Fill { out, value: 0.0 });
            }
            device.submit(stream, op)
        })
    };
    let found = found(&lost);
    assert!(!found.iter().any(Vec::is_empty), "{found:?}");
}
