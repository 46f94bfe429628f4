//! N7, N10: whatever ZeRO shards, and however far ahead it gathers, the same bits are learned as without it; with a
//! reduction per microbatch or in groups, the same up to the order of sums. The last microbatch counts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use config::{GradientReduction, Microbatch, Parallelism, Reshard, Unit, ZeroStage};
use device::Op;
use program::{Instr, PeerGroup};
use testkit::intercepted::{Call, alter_ops, drop_calls, drop_ops, intercept_calls, intercept_ops};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

const MICROBATCH: GradientReduction = GradientReduction::Microbatch;
const TWO_EACH: ZeroStage = ZeroStage::Two { reduce: MICROBATCH };
const THREE_EACH: ZeroStage = three(MICROBATCH, 1, Reshard::AfterUse);

fn case<'a>(style: Style, tied: bool, layout: Parallelism) -> Case<'a> {
    Case::new(&small_model(style, tied), layout, &training(3))
}

fn layout(zero: ZeroStage, at: (usize, usize, usize)) -> Parallelism {
    Parallelism { zero, ..degrees(at) }
}

/// Whether the sharded run, wrapped, has the bits of the unsharded one.
fn check(style: Style, tied: bool, sharded: &Parallelism, wrap: &WrapRank<'_>) -> Verdict {
    let whole = Parallelism { zero: ZeroStage::Off, shard_group: None, ..sharded.clone() };
    let off = case(style, tied, whole).outcome().expect("unsharded");
    let on = case(style, tied, sharded.clone()).wrapped(wrap).outcome();
    on.and_then(|on| same_bits(&off, &on)).map_err(|found| format!("{sharded:?}: {found}"))
}

/// Whether the sharded run, wrapped, is as near to the unsharded one as another order of sums allows.
fn near(sharded: &Parallelism, wrap: &WrapRank<'_>) -> Verdict {
    let whole = Parallelism { zero: ZeroStage::Off, shard_group: None, ..sharded.clone() };
    let off = case(Style::Gpt2, true, whole).outcome().expect("unsharded");
    let on = case(Style::Gpt2, true, sharded.clone()).wrapped(wrap).outcome();
    let near = on.and_then(|on| within_bounds(&small_model(Style::Gpt2, true), &off, &on));
    near.map_err(|found| format!("{sharded:?}: {found}"))
}

#[test]
fn every_stage_learns_the_same_bits() {
    for at in [(1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2), (2, 2, 2)] {
        for zero in [ZeroStage::One, TWO, THREE] {
            assert_holds(check(Style::Gpt2, true, &layout(zero, at), &untouched));
            assert_holds(check(Style::Llama, false, &layout(zero, at), &untouched));
        }
    }
}

/// These ranks run without overlap, so gathering ahead is an order of instructions; N10 asks that it changes no bit.
#[test]
fn gathering_ahead_and_keeping_change_no_bit() {
    for (prefetch, reshard) in [(0, Reshard::AfterUse), (3, Reshard::AfterUse), (0, Reshard::AfterBackward)] {
        let zero = three(GradientReduction::Step, prefetch, reshard);
        assert_holds(check(Style::Gpt2, true, &layout(zero, (2, 1, 2)), &untouched));
        assert_holds(check(Style::Llama, false, &layout(zero, (2, 2, 1)), &untouched));
    }
}

#[test]
fn a_reduction_per_microbatch_learns_the_same_within_rounding() {
    for at in [(1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 2)] {
        for zero in [TWO_EACH, THREE_EACH] {
            assert_holds(near(&layout(zero, at), &untouched));
        }
    }
    // Among themselves they sum in one order, whatever else is sharded and however many stages there are.
    let outcome = |zero, at| case(Style::Gpt2, true, layout(zero, at)).outcome().expect("a run");
    let two = outcome(TWO_EACH, (2, 1, 1));
    for (zero, at) in [(TWO_EACH, (2, 1, 2)), (THREE_EACH, (2, 1, 1)), (THREE_EACH, (2, 1, 2))] {
        assert_holds(same_bits(&two, &outcome(zero, at)));
    }
}

#[test]
fn groups_learn_the_same_within_rounding_and_groups_of_one_the_same_bits() {
    let grouped = |zero, shard_group, at| Parallelism { shard_group: Some(shard_group), ..layout(zero, at) };
    for zero in [ZeroStage::One, TWO, THREE] {
        assert_holds(check(Style::Gpt2, true, &grouped(zero, 1, (4, 1, 1)), &untouched));
        assert_holds(check(Style::Gpt2, true, &grouped(zero, 4, (4, 1, 1)), &untouched));
        assert_holds(near(&grouped(zero, 2, (4, 1, 1)), &untouched));
        assert_holds(near(&grouped(zero, 2, (4, 1, 2)), &untouched));
    }
    assert_holds(near(&grouped(THREE_EACH, 2, (4, 1, 1)), &untouched));
    let outcome = |zero, at| case(Style::Gpt2, true, grouped(zero, 2, at)).outcome().expect("a run");
    let one = outcome(ZeroStage::One, (4, 1, 1));
    for (zero, at) in [(TWO, (4, 1, 1)), (THREE, (4, 1, 1)), (ZeroStage::One, (4, 1, 2)), (THREE, (4, 1, 2))] {
        assert_holds(same_bits(&one, &outcome(zero, at)));
    }
}

/// The first gather of each step takes what was gathered in its place in the step before: it was made before the
/// update.
fn gather_before_the_update(_: mesh::Coord, rank: RankEngine) -> RankEngine {
    let is_first = Rc::new(Cell::new(true));
    let begins = Rc::clone(&is_first);
    let rank = intercept_ops(rank, move |device, stream, op| {
        if let Op::ClipCoefficient { .. } = op {
            begins.set(true);
        }
        device.submit(stream, op)
    });
    let gathered = RefCell::new(None::<Vec<u8>>);
    intercept_calls(rank, PeerGroup::SHARDS, move |device, group, stream, call| {
        group.call(stream, call)?;
        if let (Call::AllGather(x), true) = (call, is_first.get()) {
            is_first.set(false);
            let mut now = vec![0; x.size_bytes()];
            device.read(x, &mut now)?;
            if let Some(before) = gathered.replace(Some(now)) {
                device.write(x, &before)?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_gather_that_overtakes_the_update_is_found() {
    for (prefetch, reshard) in [(0, Reshard::AfterUse), (3, Reshard::AfterUse), (0, Reshard::AfterBackward)] {
        let sharded = layout(three(GradientReduction::Step, prefetch, reshard), (2, 1, 2));
        assert_found(check(Style::Gpt2, true, &sharded, &gather_before_the_update), "bits differ");
        assert_found(check(Style::Llama, false, &sharded, &gather_before_the_update), "bits differ");
    }
}

/// The verifier holds the order of gathers and uses.
#[test]
fn a_gather_after_its_use_is_refused() {
    let case = Case::new(&small_model(Style::Llama, false), layout(THREE, (2, 1, 1)), &training(1));
    assert_holds(case.verdict_on(|_| ()));
    let late = case.verdict_on(|programs| {
        let instrs = &mut programs[0].instrs;
        let is_use = |instr: &Instr| matches!(instr, Instr::Forward { unit: Unit::Layer(1), .. });
        let is_gather = |instr: &Instr| matches!(instr, Instr::GatherParams { unit: Unit::Layer(1), .. });
        let gather = instrs.iter().position(is_gather).expect("a gather");
        let moved = instrs.remove(gather);
        let first_use = instrs.iter().position(is_use).expect("a use");
        instrs.insert(first_use + 1, moved);
    });
    assert_found(late, "layer 1");
}

fn without_calls(kind: PeerGroup, is_dropped: fn(&Call) -> bool) -> impl Fn(mesh::Coord, RankEngine) -> RankEngine {
    move |_, rank| drop_calls(rank, kind, is_dropped)
}

#[test]
fn a_forgotten_gather_or_reduction_is_found() {
    let without_gathers = without_calls(PeerGroup::SHARDS, |call| matches!(call, Call::AllGather(_)));
    let without_reductions = without_calls(PeerGroup::SHARDS, |call| matches!(call, Call::ReduceScatter(..)));
    for zero in [ZeroStage::One, TWO, THREE] {
        assert_found(check(Style::Gpt2, true, &layout(zero, (2, 1, 1)), &without_gathers), "bits differ");
        assert_found(check(Style::Gpt2, true, &layout(zero, (2, 1, 1)), &without_reductions), "bits differ");
        let grouped = Parallelism { shard_group: Some(1), ..layout(zero, (2, 1, 1)) };
        let without_sums = without_calls(PeerGroup::REPLICAS, |call| matches!(call, Call::AllReduce(..)));
        assert_found(check(Style::Gpt2, true, &grouped, &without_sums), "bits differ");
    }
    assert_found(near(&layout(TWO_EACH, (2, 1, 1)), &without_reductions), "the gradient of");
}

/// Replica 1 computes on parameters of which its own shard is missing: what it holds was not copied to where it
/// gathers.
#[test]
fn an_own_shard_that_is_not_gathered_is_found() {
    let without_copies = |coord: mesh::Coord, rank: RankEngine| match replica(coord) {
        1 => drop_ops(rank, |op| matches!(op, Op::Copy { from, to } if from.rows == 1 && to.rows == 1)),
        _ => rank,
    };
    assert_found(check(Style::Llama, false, &layout(THREE, (2, 1, 1)), &without_copies), "bits differ");
}

/// Each microbatch's sum replaces the one before, so that the last alone counts.
#[test]
fn a_sharded_sum_that_starts_anew_is_found() {
    let replace = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::Accumulate { x, into } = *op {
                *op = Op::Copy { from: x, to: into };
            }
        })
    };
    assert_found(near(&layout(TWO_EACH, (2, 1, 1)), &replace), "the gradient of");
}

#[test]
fn a_reduction_before_the_last_microbatch_is_refused() {
    for zero in [ZeroStage::One, TWO, THREE] {
        let case = Case::new(&small_model(Style::Gpt2, false), layout(zero, (2, 1, 1)), &training(1));
        assert_holds(case.verdict_on(|_| ()));
        let hasten = case.verdict_on(|programs| {
            let instrs = &mut programs[0].instrs;
            let is_reduction = |instr: &Instr| matches!(instr, Instr::ReduceGrads { unit: Unit::Layer(1), .. });
            let reduce = *instrs.iter().find(|instr| is_reduction(instr)).expect("a reduction");
            let last = Instr::BackwardWeight { unit: Unit::Layer(1), microbatch: Microbatch(3) };
            instrs.retain(|instr| *instr != reduce);
            let before = instrs.iter().position(|instr| *instr == last).expect("the last contribution");
            instrs.insert(before, reduce);
        });
        assert_found(hasten, "gradients: pipeline rank 0: reduce gradients of layer 1 (instruction");
    }
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
    for zero in [ZeroStage::One, TWO, THREE] {
        let found = check(Style::Gpt2, false, &layout(zero, (2, 1, 1)), &forget_last);
        assert_found(found, "embedding.token.weight");
    }
}
