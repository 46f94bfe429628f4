//! N3, N4 and N8: a tied table on the first and the last stage is one parameter: its two gradients are summed after
//! each is reduced over data parallelism, and both copies are updated alike. Where one rank uses it twice in a step,
//! both uses count.

use config::{ModelSpec, Parallelism, ScheduleKind, ZeroStage};
use device::Op;
use mesh::Axis;
use program::{Instr, PeerGroup};
use testkit::intercepted::{alter_ops, drop_calls, drop_ops};
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;

use crate::checklist::rig::*;

/// Two replicas of `pp` stages.
fn stages(pp: usize, zero: ZeroStage) -> Parallelism {
    Parallelism { zero, ..degrees((2, 1, pp)) }
}

/// Whether two stages learn the bits that one learns, with equal tables at both ends.
fn check(zero: ZeroStage, wrap: &WrapRank<'_>) -> (Verdict, Verdict) {
    let (model, train) = (small_model(Style::Gpt2, true), training(3));
    let one_stage = Case::new(&model, stages(1, zero), &train).outcome().expect("one stage");
    let replicas = Replicas::every(3);
    let two_stages = Case::new(&model, stages(2, zero), &train).wrapped(wrap).watched(&replicas).outcome();
    (two_stages.and_then(|other| same_bits(&one_stage, &other)), replicas_agree(&replicas))
}

#[test]
fn both_uses_of_a_tied_table_add_up_on_both_stages() {
    for zero in [ZeroStage::Off, ZeroStage::One, TWO, THREE] {
        let (equal, replicas) = check(zero, &untouched);
        assert_holds(equal);
        assert_holds(replicas);
        let (equal, replicas) = check(zero, &|_, rank| drop_calls(rank, PeerGroup::Ends, |_| true));
        assert_found(equal, "embedding.token.weight");
        assert_found(replicas, "weights of embedding.token.weight differ");
    }
}

/// Whether a rank that uses the table at both ends of a step learns what two ranks learn that use it once each.
fn used_twice(zero: ZeroStage, wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) = (small_model(Style::Gpt2, true), training(3));
    let twice = Case::new(&model, stages(1, zero), &train).wrapped(wrap).outcome()?;
    same_bits(&Case::new(&model, stages(2, zero), &train).outcome()?, &twice)
}

#[test]
fn a_table_that_one_rank_uses_twice_has_the_gradients_of_both_uses() {
    for zero in [ZeroStage::Off, ZeroStage::One, TWO, THREE] {
        assert_holds(used_twice(zero, &untouched));
    }
    let one_use_counts = |_, rank| drop_ops(rank, |op| matches!(op, Op::Accumulate { .. }));
    assert_found(used_twice(ZeroStage::Off, &one_use_counts), "embedding.token.weight");
    // The second use starts the sum again.
    let other_use_counts = |_, rank| {
        alter_ops(rank, |op| {
            if let Op::Accumulate { x, into } = *op {
                *op = Op::Copy { from: x, to: into };
            }
        })
    };
    assert_found(used_twice(ZeroStage::Off, &other_use_counts), "embedding.token.weight");
}

/// A rank that has both ends of a V of stages uses the table twice, too; also sharded.
#[test]
fn both_uses_on_one_rank_have_the_bits_of_uses_apart() {
    let (model, train) = (ModelSpec { num_layers: 6, ..small_model(Style::Gpt2, true) }, training(3));
    for tp in [1, 2] {
        let layout = |pp, schedule: ScheduleKind| Parallelism { schedule: schedule.into(), ..degrees((2, tp, pp)) };
        let apart = Case::new(&model, layout(2, ScheduleKind::OneForwardOneBackward), &train).outcome().unwrap();
        for (pp, schedule) in
            [(1, ScheduleKind::OneForwardOneBackward), (1, ScheduleKind::GPipe), (2, ScheduleKind::ZeroBubbleV)]
        {
            assert_holds(same_bits(&apart, &Case::new(&model, layout(pp, schedule), &train).outcome().unwrap()));
        }
    }
}

#[test]
fn copies_of_a_tied_table_are_updated_alike() {
    let without_decay = |op: &mut Op| {
        if let Op::AdamW { update, .. } = op {
            update.weight_decay = 0.0;
        }
    };
    let with_another_memory = |op: &mut Op| {
        if let Op::AdamW { update, .. } = op {
            update.beta2 = 0.99;
        }
    };
    let on_last_stage = |alter: fn(&mut Op)| {
        move |coord: mesh::Coord, rank| if coord.along(Axis::Pp) == 1 { alter_ops(rank, alter) } else { rank }
    };
    let (_, replicas) = check(ZeroStage::Off, &on_last_stage(without_decay));
    assert_found(replicas, "weights of embedding.token.weight differ");
    let (_, replicas) = check(ZeroStage::Off, &on_last_stage(with_another_memory));
    assert_found(replicas, "second moments of embedding.token.weight differ");
}

#[test]
fn a_program_that_forgets_or_hastens_the_tied_sum_is_refused() {
    let case = Case::new(&small_model(Style::Gpt2, true), degrees((2, 1, 2)), &training(1));
    let edited = |edit: fn(&mut Vec<Instr>)| {
        case.verdict_on(|programs| programs.iter_mut().for_each(|program| edit(&mut program.instrs)))
    };
    assert_holds(edited(|_| ()));
    let forget = edited(|instrs| instrs.retain(|instr| *instr != Instr::SumTied));
    assert_found(forget, "gradients: pipeline rank 0: `sum gradients of the tied table` is missing");
    let hasten = edited(|instrs| {
        let first_reduction = instrs.iter().position(|instr| matches!(instr, Instr::ReduceGrads { .. }));
        instrs.retain(|instr| *instr != Instr::SumTied);
        instrs.insert(first_reduction.expect("a reduction"), Instr::SumTied);
    });
    assert_found(hasten, "gradients: pipeline rank 0: what reads its sum");
}
