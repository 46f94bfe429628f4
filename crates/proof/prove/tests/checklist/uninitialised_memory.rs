//! N34: memory that nothing wrote is never read: a run in a poisoned arena, with every freed place poisoned again, has
//! the bits of a run in zeros.

use std::cell::Cell;

use config::{GradientReduction, ModelSpec, Parallelism, Recompute, Reshard};
use device::{DropoutKey, Op, Orientation, Write};
use mesh::Axis;
use program::PeerGroup;
use prove::NoWatch;
use testkit::intercepted::{Call, intercept_ops};
use testkit::models::Style;
use testkit::poison::{PoisonFreed, poison_arena};
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Where memory is poisoned.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Poison {
    Nowhere,
    Everywhere,
}

/// Whether the run, wrapped and poisoned, has the bits of the clean run in zeroed memory.
fn check(style: Style, layout: &Parallelism, poison: Poison, wrap: &WrapRank<'_>) -> Verdict {
    let (model, train) =
        (ModelSpec { qk_norm: config::QkNorm::Heads, ..small_model(style, style == Style::Gpt2) }, training(2));
    let case = Case::new(&model, layout.clone(), &train).tokens(&RAGGED);
    let clean = case.outcome().expect("the clean run");
    let setup = case.setup();
    let poisoned = |coord: mesh::Coord, rank: RankEngine| {
        let arena_bytes = setup.plan(coord.along(Axis::Pp)).arena_bytes();
        wrap(coord, poison_arena(rank, arena_bytes).expect("the arena is writable"))
    };
    let outcome = match poison {
        Poison::Nowhere => case.clone().wrapped(wrap).watched(&NoWatch).outcome(),
        Poison::Everywhere => case.clone().wrapped(&poisoned).watched(&PoisonFreed).outcome(),
    };
    outcome.and_then(|outcome| same_bits(&clean, &outcome)).map_err(|found| format!("{layout:?}: {found}"))
}

#[test]
fn nothing_is_read_that_was_not_written() {
    for style in [Style::Gpt2, Style::Llama] {
        for at in [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2)] {
            assert_holds(check(style, &degrees(at), Poison::Everywhere, &untouched));
        }
        let recomputed = Parallelism { recompute: Recompute::FULL, ..degrees((2, 1, 2)) };
        assert_holds(check(style, &recomputed, Poison::Everywhere, &untouched));
        for zero in [TWO, THREE, three(GradientReduction::Microbatch, 0, Reshard::AfterBackward)] {
            let sharded = Parallelism { zero, ..degrees((2, 1, 2)) };
            assert_holds(check(style, &sharded, Poison::Everywhere, &untouched));
        }
    }
}

#[test]
fn an_accumulator_that_is_not_cleared_is_found() {
    // Fresh memory is zero, so that the first step alone does not show it.
    let wrap = |_, rank: RankEngine| {
        let steps = Cell::new(0);
        intercept_ops(rank, move |device, stream, op| {
            let mut op = *op;
            if let Op::ClipCoefficient { .. } = op {
                steps.set(steps.get() + 1);
            }
            if let (Op::MatMul { orientation: Orientation::Tn, write, .. }, 0) = (&mut op, steps.get()) {
                *write = Write::Accumulate;
            }
            device.submit(stream, &op)
        })
    };
    assert_holds(check(Style::Llama, &degrees((1, 1, 1)), Poison::Nowhere, &wrap));
    assert_found(check(Style::Llama, &degrees((1, 1, 1)), Poison::Everywhere, &wrap), "no weight was changed");
}

/// From the second step on nothing is gathered: the places of gathered parameters still hold them, unless freed places
/// are poisoned.
#[test]
fn parameters_read_after_they_were_freed_are_found() {
    let wrap = |_, rank: RankEngine| {
        let steps = Cell::new(0);
        let rank = intercept_ops(rank, |device, stream, op| device.submit(stream, op));
        testkit::intercepted::intercept_calls(rank, PeerGroup::SHARDS, move |_, group, stream, call| {
            if let Call::ReduceScatter(..) = call {
                steps.set(1);
            }
            if matches!(call, Call::AllGather(_)) && steps.get() > 0 { Ok(()) } else { call.perform(group, stream) }
        })
    };
    let layout = Parallelism { zero: three(GradientReduction::Step, 0, Reshard::AfterUse), ..degrees((2, 1, 1)) };
    assert_found(check(Style::Llama, &layout, Poison::Everywhere, &wrap), "no weight was changed");
}

#[test]
fn a_freed_place_that_is_read_again_is_found() {
    // From the second step on, the gradient after the embedding's dropout is not computed: the value there is old.
    let wrap = |_, rank: RankEngine| {
        let steps = Cell::new(0);
        intercept_ops(rank, move |device, stream, op| {
            if let Op::ClipCoefficient { .. } = op {
                steps.set(steps.get() + 1);
            }
            let is_embedding = |key: &DropoutKey| key.site == u32::MAX;
            if matches!(op, Op::DropoutBackward { dropout, .. } if steps.get() > 0 && is_embedding(dropout)) {
                return Ok(());
            }
            device.submit(stream, op)
        })
    };
    assert_found(check(Style::Llama, &degrees((1, 1, 1)), Poison::Nowhere, &wrap), "bits differ");
    assert_found(check(Style::Llama, &degrees((1, 1, 1)), Poison::Everywhere, &wrap), "no weight was changed");
}
