//! N3 and N4: a tied table on the first and the last stage is one parameter: its two gradients are summed after each is
//! reduced over data parallelism, and both copies are updated alike.

use device::Op;
use mesh::Axis;
use program::Instr;
use prove::Replicas;
use prove::intercepted::{GroupKind, alter_ops, drop_calls};
use prove::models::Style;
use prove::wrapped_engine::WrapRank;
use spec::{Parallelism, ZeroStage};

use crate::rig::*;

/// Whether two stages learn the bits that one learns, with equal tables at both ends.
fn check(zero: ZeroStage, wrap: &WrapRank<'_>) -> (Verdict, Verdict) {
    let (model, train) = (small_model(Style::Gpt2, true), training(3));
    let layout = |pp| Parallelism { zero, ..degrees((2, 1, pp)) };
    let one_stage = Case::new(&model, layout(1), &train).outcome().expect("one stage");
    let replicas = Replicas::every(3);
    let two_stages = Case::new(&model, layout(2), &train).wrapped(wrap).watched(&replicas).outcome();
    (two_stages.and_then(|other| same_bits(&one_stage, &other)), replicas_agree(&replicas))
}

#[test]
fn both_uses_of_a_tied_table_add_up_on_both_stages() {
    for zero in [ZeroStage::Off, ZeroStage::One, TWO, THREE] {
        let (equal, replicas) = check(zero, &untouched);
        assert_holds(equal);
        assert_holds(replicas);
        let (equal, replicas) = check(zero, &|_, rank| drop_calls(rank, GroupKind::Tied, |_| true));
        assert_found(equal, "embedding.token.weight");
        assert_found(replicas, "weights of embedding.token.weight differ");
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
