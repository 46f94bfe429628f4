//! The stages of ZeRO in programs: gathers and frees around uses, reductions, sizes; and refused inputs.

use std::collections::BTreeSet;

use crate::{
    Category, ContributionOrder, Demands, Instr, PlannedLife, Program, RankPlan, Rule, Value, Violation, link,
    plan_memory, verify,
};
use config::{Gathering, GradientReduction, Microbatch, Overlap, Recompute, Reshard, ScheduleKind, Unit, ZeroStage};

use crate::tests::setup::{Setup, ZERO_3, zero_forms};

const MB0: Microbatch = Microbatch(0);
const MB1: Microbatch = Microbatch(1);
const LAYER: Unit = Unit::Layer(1);

fn three(reduce: GradientReduction, prefetch: usize, reshard: Reshard) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } }
}

fn violations(programs: Vec<Program>, setup: &Setup) -> Vec<Violation> {
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::Off };
    link(programs).and_then(|graph| verify(graph, &setup.sizes(), demands)).err().unwrap_or_default()
}

/// Mutates the program of the first rank; the broken rules and the first message.
fn broken(setup: &Setup, mutate: impl FnOnce(&mut Vec<Instr>)) -> (Vec<Rule>, String) {
    let mut programs = setup.programs();
    assert_eq!(violations(programs.clone(), setup), [], "the intact program");
    mutate(&mut programs[0].instrs);
    let violations = violations(programs, setup);
    let rules: BTreeSet<Rule> = violations.iter().map(|violation| violation.rule).collect();
    (rules.into_iter().collect(), violations.first().map(ToString::to_string).unwrap_or_default())
}

fn at(instrs: &[Instr], instr: Instr) -> usize {
    instrs.iter().position(|other| *other == instr).unwrap_or_else(|| panic!("no `{instr}`"))
}

/// Removes the first `instr`.
fn remove(instrs: &mut Vec<Instr>, instr: Instr) {
    instrs.remove(at(instrs, instr));
}

/// Moves the first `instr` directly before the first `other`.
fn put_before(instrs: &mut Vec<Instr>, instr: Instr, other: Instr) {
    remove(instrs, instr);
    instrs.insert(at(instrs, other), instr);
}

const GATHER: Instr = Instr::GatherParams { unit: LAYER };
const FREE: Instr = Instr::FreeParams { unit: LAYER };

/// The first reduction of the layer's gradients.
fn reduction(instrs: &[Instr]) -> Instr {
    *instrs.iter().find(|instr| matches!(instr, Instr::ReduceGrads { unit: LAYER, .. })).unwrap()
}

fn backward_weight(microbatch: Microbatch) -> Instr {
    Instr::BackwardWeight { unit: LAYER, microbatch }
}

#[test]
fn a_unit_does_not_compute_on_parameters_that_were_freed() {
    let setup = Setup { zero: ZERO_3, ..Setup::default() };
    let forward = Instr::Forward { unit: LAYER, microbatch: MB0 };
    let (rules, message) = broken(&setup, |instrs| put_before(instrs, FREE, forward));
    assert_eq!(rules, [Rule::Parameters]);
    assert!(message.starts_with("parameters: pipeline rank 0, instruction "), "{message}");
    assert!(message.ends_with("needs the gathered parameters of layer 1, which is gone"), "{message}");
}

#[test]
fn parameters_are_gathered_once_before_their_use_and_freed_behind_it() {
    let setup = Setup { zero: ZERO_3, ..Setup::default() };
    let (rules, message) = broken(&setup, |instrs| remove(instrs, GATHER));
    assert_eq!(rules, [Rule::Parameters]);
    assert!(message.contains("needs the gathered parameters of layer 1, which was never written"), "{message}");
    let (rules, message) = broken(&setup, |instrs| instrs.insert(at(instrs, GATHER), GATHER));
    assert_eq!(rules, [Rule::Parameters]);
    assert!(message.contains("overwrites the gathered parameters of layer 1, which is still needed"), "{message}");
    let (rules, message) = broken(&setup, |instrs| {
        let last = instrs.iter().rposition(|instr| *instr == FREE).unwrap();
        instrs.remove(last);
    });
    assert_eq!(rules, [Rule::Parameters]);
    assert!(message.contains("at the end: the gathered parameters of layer 1, written by instruction"), "{message}");
    let (rules, message) = broken(&setup, |instrs| instrs.push(Instr::GatherParams { unit: Unit::Layer(3) }));
    assert_eq!(rules, [Rule::Values, Rule::Parameters, Rule::Gradients]);
    assert!(message.contains("needs the parameters of layer 3, which this rank does not hold"), "{message}");
}

#[test]
fn whole_parameters_are_not_freed() {
    let setup = Setup { zero: ZeroStage::Two { reduce: GradientReduction::Step }, ..Setup::default() };
    assert_eq!(broken(&setup, |instrs| instrs.push(FREE)).0, [Rule::Parameters]);
}

#[test]
fn whole_gradients_are_reduced_behind_their_last_contribution() {
    let setup = Setup { zero: ZeroStage::Two { reduce: GradientReduction::Step }, ..Setup::default() };
    let (rules, message) =
        broken(&setup, |instrs| put_before(instrs, reduction(instrs), backward_weight(Microbatch(3))));
    assert_eq!(rules, [Rule::Values, Rule::Gradients]);
    assert!(message.contains("the unreduced gradients of layer 1, written by instruction"), "{message}");
    let (rules, message) = broken(&setup, |instrs| remove(instrs, reduction(instrs)));
    assert_eq!(rules, [Rule::Values, Rule::Gradients]);
    assert!(message.contains("needs the reduced gradients of layer 1, which was never written"), "{message}");
}

#[test]
fn each_microbatch_is_reduced_before_the_next() {
    let reduce = GradientReduction::Microbatch;
    for zero in [ZeroStage::Two { reduce }, three(reduce, 1, Reshard::AfterUse)] {
        let setup = Setup { zero, ..Setup::default() };
        let (rules, message) = broken(&setup, |instrs| remove(instrs, reduction(instrs)));
        assert_eq!(rules, [Rule::Gradients]);
        assert!(message.contains("is there 3 times, it should be once for each of 4 microbatches"), "{message}");
        let (rules, message) = broken(&setup, |instrs| put_before(instrs, reduction(instrs), backward_weight(MB0)));
        assert_eq!(rules, [Rule::Values, Rule::Gradients]);
        assert!(message.contains("needs the unreduced gradients of layer 1, which was never written"), "{message}");
        let (rules, message) = broken(&setup, |instrs| {
            remove(instrs, reduction(instrs));
            instrs.insert(at(instrs, backward_weight(MB1)) + 1, reduction(instrs));
        });
        assert_eq!(rules, [Rule::Values, Rule::Gradients]);
        assert!(message.contains("needs the unreduced gradients of layer 1, which is gone"), "{message}");
    }
}

#[test]
fn memory_names_what_is_whole_for_a_while() {
    let setup = Setup { zero: ZERO_3, ..Setup::default() };
    let demands = Demands { capacity_bytes: Some(1000), order: ContributionOrder::Ascending, overlap: Overlap::Off };
    let violations = verify(setup.graph(), &setup.sizes(), demands).unwrap_err();
    assert!(violations.iter().all(|violation| violation.rule == Rule::Memory), "{violations:?}");
    assert!(violations[0].message.contains("gathered parameters "), "{}", violations[0]);
}

/// Every setup of a schedule and a recomputation with `zero`, on one rank and on three.
fn setups(zero: ZeroStage) -> impl Iterator<Item = Setup> {
    let kinds = [ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward];
    kinds.into_iter().flat_map(move |kind| {
        [Recompute::None, Recompute::FULL].into_iter().flat_map(move |recompute| {
            [(1, true), (3, true), (3, false)].map(|(pp, tied)| Setup {
                kind,
                recompute,
                pp,
                tied,
                zero,
                num_layers: 9,
                num_microbatches: 5,
                ..Setup::default()
            })
        })
    })
}

fn gathered(plan: &RankPlan) -> impl Iterator<Item = &PlannedLife> {
    plan.lives().iter().filter(|life| life.category == Category::Gathered)
}

/// With a prefetch of `n`, at most `n + 1` units' parameters are whole at once, and at some time this many are.
#[test]
fn so_many_units_are_whole_at_once_as_are_prefetched_and_one() {
    for prefetch in [0, 1, 2, 4] {
        for setup in setups(three(GradientReduction::Step, prefetch, Reshard::AfterUse)) {
            let graph = setup.graph();
            let plan = plan_memory(&graph, &setup.sizes(), Overlap::Off);
            for (program, plan) in graph.programs().iter().zip(&plan.ranks) {
                let mut most = 0;
                for at in 0..program.instrs.len() {
                    let alive = gathered(plan).filter(|life| life.start <= at && at < life.end);
                    let (layers, others): (Vec<&PlannedLife>, Vec<_>) =
                        alive.partition(|life| matches!(life.value, Value::Gathered(Unit::Layer(_))));
                    // A table is there for the embedding's or the head's use.
                    let ends = [Unit::Embedding, Unit::Head].map(Value::Gathered);
                    let ends = others.iter().filter(|life| ends.contains(&life.value)).count();
                    assert!(layers.len() + ends <= prefetch + 1, "{setup:?}, instruction {at}\n{program}");
                    most = most.max(layers.len());
                }
                // A stage has three layers.
                let expected = if setup.pp == 1 { prefetch + 1 } else { 3.min(prefetch + 1) };
                assert_eq!(most, expected, "{setup:?}\n{program}");
            }
        }
    }
}

/// Kept from the forward to the backward pass, no layer is gathered for a backward pass.
#[test]
fn parameters_that_are_kept_are_gathered_once_per_microbatch_at_most() {
    for reshard in [Reshard::AfterUse, Reshard::AfterBackward] {
        let zero = three(GradientReduction::Step, 0, reshard);
        let setup = Setup { zero, pp: 1, num_layers: 3, num_microbatches: 2, ..Setup::default() };
        let program = &setup.programs()[0];
        let gathers = program.instrs.iter().filter(|instr| matches!(instr, Instr::GatherParams { .. })).count();
        // Of each microbatch: table and positions; layers 0 to 2 and, freed after each use, 1 and 0 again (2 is
        // used right before the head, which comes between); table and norm for the head.
        let (ends, layers) = (4, 3);
        let again = match reshard {
            Reshard::AfterUse => layers,
            Reshard::AfterBackward => 0,
        };
        assert_eq!(gathers, 2 * (ends + layers + again), "{program}");
    }
}

#[test]
fn arenas_of_every_form_are_full() {
    let mut worst = (1.0, String::new());
    for zero in zero_forms() {
        for setup in setups(zero) {
            for (rank, plan) in plan_memory(&setup.graph(), &setup.sizes(), Overlap::Off).ranks.iter().enumerate() {
                let ratio = plan.arena_bytes() as f64 / plan.largest_live_bytes() as f64;
                if ratio > worst.0 {
                    worst = (ratio, format!("{setup:?}, rank {rank}"));
                }
            }
        }
    }
    println!("largest ratio {worst:?}");
    assert!(worst.0 <= 1.02, "{worst:?}");
}

/// The table of ZeRO in bytes, with `dp = 2`.
#[test]
fn stages_keep_what_the_table_says() {
    let bytes = |zero: ZeroStage, wanted: fn(Value) -> bool| -> usize {
        let setup = Setup { zero, pp: 1, ..Setup::default() };
        let plan = plan_memory(&setup.graph(), &setup.sizes(), Overlap::Off);
        let state = plan.ranks[0].state().iter().copied();
        let kept = state.chain(plan.ranks[0].lives().iter().map(|life| (life.value, life.extent)));
        kept.filter(|(value, _)| wanted(*value)).map(|(_, extent)| extent.len_bytes).sum()
    };
    let params = |zero| bytes(zero, |value| matches!(value, Value::Params(_)));
    let gradients = |zero| bytes(zero, |value| matches!(value, Value::Accumulator { .. } | Value::Reduced { .. }));
    let moments = |zero| bytes(zero, |value| matches!(value, Value::FirstMoment(_) | Value::SecondMoment(_)));
    let reduce = GradientReduction::Step;
    let [off, one, two, three] = [ZeroStage::Off, ZeroStage::One, ZeroStage::Two { reduce }, ZERO_3];
    assert_eq!([off, one, two, three].map(|zero| params(off) / params(zero)), [1, 1, 1, 2]);
    assert_eq!([off, one, two, three].map(|zero| gradients(off) / gradients(zero)), [1, 1, 2, 2]);
    assert_eq!([off, one, two, three].map(|zero| moments(off) / moments(zero)), [1, 2, 2, 2]);
}
