//! N7: ZeRO-1 learns the bits that unsharded optimizer states learn, and the last microbatch counts.

use std::cell::Cell;

use device::Op;
use program::Instr;
use prove::intercepted::{Call, GroupKind, drop_calls, intercept_ops};
use prove::models::Style;
use prove::wrapped_engine::WrapRank;
use spec::{Microbatch, Parallelism, Unit, ZeroStage};
use train::RankEngine;

use crate::rig::*;

/// Whether the sharded run, wrapped, equals the unsharded one.
fn check(style: Style, tied: bool, at: (usize, usize, usize), wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) = (small_model(style, tied), training(3));
    let case = |zero| Case::new(&model, Parallelism { zero, ..degrees(at) }, &train);
    let off = case(ZeroStage::Off).outcome().expect("unsharded");
    case(ZeroStage::One).wrapped(wrap).outcome().and_then(|one| same_bits(&off, &one))
}

#[test]
fn sharded_and_whole_optimizer_states_learn_the_same_bits() {
    for at in [(2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2), (2, 2, 2)] {
        assert_holds(check(Style::Gpt2, true, at, &untouched));
        assert_holds(check(Style::Llama, false, at, &untouched));
    }
}

#[test]
fn a_forgotten_gather_or_reduction_is_found() {
    let without_gathers =
        |_, rank: RankEngine| drop_calls(rank, GroupKind::Data, |call| matches!(call, Call::AllGather(_)));
    assert_found(check(Style::Gpt2, true, (2, 1, 1), &without_gathers), "bits differ");
    let without_reductions =
        |_, rank: RankEngine| drop_calls(rank, GroupKind::Data, |call| matches!(call, Call::ReduceScatter(_)));
    assert_found(check(Style::Gpt2, true, (2, 1, 1), &without_reductions), "bits differ");
}

#[test]
fn a_reduction_before_the_last_microbatch_is_refused() {
    let case = Case::new(&small_model(Style::Gpt2, false), degrees((2, 1, 1)), &training(1));
    let hasten = case.verdict_on(|programs| {
        let instrs = &mut programs[0].instrs;
        let reduce = Instr::ReduceGrads { unit: Unit::Layer(1), by: Unit::Layer(1) };
        let last = Instr::BackwardWeight { unit: Unit::Layer(1), microbatch: Microbatch(3) };
        instrs.retain(|instr| *instr != reduce);
        let before = instrs.iter().position(|instr| *instr == last).expect("the last contribution");
        instrs.insert(before, reduce);
    });
    assert_found(hasten, "gradients: pipeline rank 0: reduce gradients of layer 1 (instruction");
}

/// Tokens that the model of the checklist knows.
const TABLE_ROWS: usize = 257;

#[test]
fn a_last_microbatch_left_out_is_found() {
    // Two replicas have four microbatches each; of the token table, the fourth of each step is forgotten.
    let forget_last = |_, rank: RankEngine| {
        let seen = Cell::new(0);
        intercept_ops(rank, move |device, stream, op| {
            if let Op::EmbeddingBackward { dtable, .. } = op
                && dtable.rows == TABLE_ROWS
            {
                seen.set(seen.get() + 1);
                if seen.get() % 4 == 0 {
                    return Ok(());
                }
            }
            device.submit(stream, op)
        })
    };
    assert_found(check(Style::Gpt2, false, (2, 1, 1), &forget_last), "embedding.token.weight");
}
