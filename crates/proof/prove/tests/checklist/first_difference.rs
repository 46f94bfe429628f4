//! The first value at which two runs differ is the one in which a fault is injected, whatever the layout.

use config::{Init, ModelSpec, Parallelism, SequenceParallel, Unit, UnitLayout, ZeroStage};
use device::{DropoutKey, Op};
use mesh::Axis;
use program::PeerGroup;
use prove::{Found, Holding, ProofError, SingleProcess, Watch, first_difference, run_first};
use testkit::intercepted::{Call, alter_ops, drop_calls, drop_ops};
use testkit::models::Style;
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, Setup};

use crate::checklist::rig::*;

const STEPS: u32 = 2;

fn model() -> ModelSpec {
    small_model(Style::Gpt2, true)
}

fn case(layout: Parallelism) -> Case<'static> {
    Case::new(&model(), layout, &training(STEPS))
}

/// Says where `a` and `b` first differ: value and element, then who holds which of the values of each run.
fn check(a: &Case<'_>, b: &Case<'_>) -> Verdict {
    let run = |case: &Case<'_>, steps: u32, watch: &dyn Watch| -> Result<(), ProofError> {
        let setup = case.setup();
        run_first(steps, &setup, &WrappedEngine::new(&setup, case.wrap), case.tokens, watch)
    };
    let first = |steps: u32, watch: &dyn Watch| run(a, steps, watch);
    let second = |steps: u32, watch: &dyn Watch| run(b, steps, watch);
    let found = first_difference([&first, &second], STEPS, &SingleProcess).map_err(|error| error.to_string())?;
    match found.expect("all ranks are in this process") {
        Found::Nothing { values } if values < 20 => Err(format!("only {values} values were compared")),
        Found::Nothing { .. } => Ok(()),
        Found::First(difference) => {
            let [first, second] = difference.holdings.each_ref().map(|holdings| holders(holdings));
            Err(format!("{}{}; {first} | {second}", difference.value, difference.element))
        }
    }
}

/// Values are numbered in the order in which ranks show them.
fn holders(holdings: &[Holding]) -> String {
    let mut values: Vec<u32> = vec![];
    let mut told = vec![];
    for Holding { place, value, .. } in holdings {
        if !values.contains(&value.to_bits()) {
            values.push(value.to_bits());
        }
        let number = values.iter().take_while(|seen| **seen != value.to_bits()).count();
        told.push(format!("{place} has value {number}"));
    }
    told.join(", ")
}

#[test]
fn layouts_that_promise_the_same_bits_differ_in_no_value() {
    let plain = case(degrees((2, 2, 1)));
    for zero in [ZeroStage::Off, TWO, THREE] {
        assert_holds(check(&plain, &case(Parallelism { zero, ..degrees((2, 2, 2)) })));
    }
    let shared = |at| case(Parallelism { sequence_parallel: SequenceParallel::On, ..degrees(at) });
    assert_holds(check(&shared((1, 2, 1)), &shared((1, 2, 2))));
}

#[test]
fn layouts_that_sum_in_another_order_differ_where_the_sum_is() {
    let one = case(degrees((1, 1, 1)));
    // Outputs and their gradients are the same bits under every dp; with groups of two, four replicas are added in
    // another order.
    let grouped = Parallelism { shard_group: Some(2), ..degrees((4, 1, 1)) };
    assert_found(check(&case(degrees((4, 1, 1))), &case(grouped)), "step 1: gradient of ");
    assert_found(check(&one, &case(degrees((1, 2, 1)))), "step 1: output of layer 0, forward, sequence 0, token 0");
    // Sequence parallelism sums some gradients differently from tensor parallelism alone: those of parameters that are
    // applied to sharded tokens.
    let shared = Parallelism { sequence_parallel: SequenceParallel::On, ..degrees((1, 2, 1)) };
    assert_found(check(&case(degrees((1, 2, 1))), &case(shared)), "step 1: gradient of ");
}

/// Whether a rank is the second along `axis`.
fn second_along(axis: Axis, coord: mesh::Coord) -> bool {
    coord.along(axis) == 1
}

#[test]
fn a_spoilt_forward_pass_is_found_at_its_unit() {
    let masks_of_another_step = |coord: mesh::Coord, rank: RankEngine| match second_along(Axis::Pp, coord) {
        false => rank,
        true => alter_ops(rank, |op| {
            if let Op::DropoutAdd { dropout: Some(DropoutKey { step, .. }), .. } = op {
                *step += 7;
            }
        }),
    };
    let found = check(&case(degrees((1, 1, 1))), &case(degrees((1, 2, 2))).wrapped(&masks_of_another_step));
    // Tensor parallelism alone makes a difference in layer 0 first, so the layouts have to be alike.
    assert_found(found, "step 1: output of layer 0");
    let found = check(&case(degrees((1, 2, 1))), &case(degrees((1, 2, 2))).wrapped(&masks_of_another_step));
    assert_found(found, "step 1: output of layer 1, forward, sequence 0, token 0, channel ");
}

#[test]
fn a_rank_that_is_apart_from_its_peers_is_named() {
    let one_without_bias = |coord: mesh::Coord, rank: RankEngine| match second_along(Axis::Tp, coord) {
        false => rank,
        true => alter_ops(rank, |op| {
            if let Op::DropoutAdd { dropout, .. } = op {
                *dropout = None;
            }
        }),
    };
    let plain = degrees((1, 2, 1));
    let found = check(&case(plain.clone()), &case(plain).wrapped(&one_without_bias));
    assert_found(
        found,
        "pp 0, dp 0, tp 0 has value 0, pp 0, dp 0, tp 1 has value 0 | \
         pp 0, dp 0, tp 0 has value 0, pp 0, dp 0, tp 1 has value 1",
    );
}

#[test]
fn a_spoilt_backward_pass_is_found_at_its_unit() {
    let forget_masks = |coord: mesh::Coord, rank: RankEngine| match second_along(Axis::Pp, coord) {
        true => rank,
        false => drop_ops(rank, |op| matches!(op, Op::DropoutBackward { .. })),
    };
    let found = check(&case(degrees((2, 1, 1))), &case(degrees((2, 1, 2))).wrapped(&forget_masks));
    assert_found(found, "step 1: gradient of the output of embedding, backward, sequence 0");
    let without_sums = |_: mesh::Coord, rank: RankEngine| {
        drop_calls(rank, PeerGroup::SHARDS, |call| matches!(call, Call::ReduceScatter(..)))
    };
    let found = check(&case(degrees((2, 1, 1))), &case(degrees((2, 1, 2))).wrapped(&without_sums));
    assert_found(found, "step 1: gradient of ");
}

#[test]
fn a_spoilt_update_or_a_spoilt_declaration_is_found_at_its_weight() {
    let decay_twice = |coord: mesh::Coord, rank: RankEngine| match second_along(Axis::Pp, coord) {
        false => rank,
        true => alter_ops(rank, |op| {
            if let Op::AdamW { update, .. } = op {
                update.weight_decay *= 2.0;
            }
        }),
    };
    let found = check(&case(degrees((2, 1, 1))), &case(degrees((2, 1, 2))).wrapped(&decay_twice));
    // The first of its weights is its copy of the tied table.
    assert_found(found, "step 1: weight embedding.token.weight, element [0, 0]");
    let untied = |layout| Case::new(&small_model(Style::Gpt2, false), layout, &training(STEPS));
    let found = check(&untied(degrees((2, 1, 1))), &untied(degrees((2, 1, 2))).wrapped(&decay_twice));
    assert_found(found, "step 1: weight layers.1.");
    let declare_zeros = |setup: &mut Setup| {
        let mut params = config::params(&setup.model, Unit::Layer(1));
        for param in params.iter_mut().filter(|param| param.name.ends_with("ffn.down.weight")) {
            param.init = Init::Zeros;
        }
        setup.layouts.insert(Unit::Layer(1), UnitLayout::new(params, setup.parallelism.axis_sizes(), 2));
    };
    let found = check(&case(degrees((2, 1, 1))), &case(degrees((2, 1, 2))).spoilt(&declare_zeros));
    assert_found(found, "step 1: output of layer 1, forward");
}
