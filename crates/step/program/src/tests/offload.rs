//! Optimizer state in memory of the host: instructions, memory, and faults that the verifier finds.

use crate::{
    ContributionOrder, Demands, Durations, Instr, Program, Queue, Queues, RankView, StepTimes, UpdatedGathers, Updates,
    Value, Verified, link, plan_memory, verify,
};
use config::{Offload, Overlap, Unit, ZeroStage};

use crate::tests::setup::{Setup, ZERO_3, zero_forms};
use crate::tests::waits::copies_without_a_wait;

fn offloaded(zero: ZeroStage) -> Setup {
    Setup { zero, offload: Offload::Optimizer, ..Setup::default() }
}

fn tail(program: &Program) -> String {
    let first = program.instrs.iter().position(|instr| matches!(instr, Instr::FetchState { .. }));
    let lines = program.instrs[first.expect("state is fetched")..].iter().map(Instr::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn state_is_fetched_two_units_ahead_and_copied_back_after_its_update() {
    let programs = offloaded(ZeroStage::One).programs();
    let expected = "\
fetch optimizer state of table
fetch optimizer state of layer 2
sum gradients of the tied table
gradient norm
optimizer step of table
gather parameters of table
fetch optimizer state of layer 3
offload optimizer state of table
optimizer step of layer 2
gather parameters of layer 2
fetch optimizer state of head
offload optimizer state of layer 2
optimizer step of layer 3
gather parameters of layer 3
offload optimizer state of layer 3
optimizer step of head
gather parameters of head
offload optimizer state of head";
    assert_eq!(tail(&programs[1]), expected);
}

/// The arena loses the moments and gains at most those of three units; the host has the moments, whole or sharded.
#[test]
fn arenas_lose_the_state_and_gain_what_is_staged() {
    for zero in zero_forms() {
        for overlap in [Overlap::Off, Overlap::On] {
            let (with, without) = (offloaded(zero), Setup { zero, ..Setup::default() });
            let plan = |setup: &Setup| plan_memory(&setup.graph(), &setup.sizes(), overlap);
            let sizes = with.sizes();
            for (pp, (with, without)) in plan(&with).ranks.iter().zip(&plan(&without).ranks).enumerate() {
                let units: Vec<Unit> = offloaded(zero).programs()[pp].view.trained_units().collect();
                let of = |unit: &Unit| {
                    let aligned = |value| sizes.bytes(value).next_multiple_of(device::ALIGN_BYTES);
                    aligned(Value::FirstMoment(*unit)) + aligned(Value::SecondMoment(*unit))
                };
                let state: usize = units.iter().map(of).sum();
                let staged = 3 * units.iter().map(of).max().expect("units");
                assert_eq!((without.host_bytes(), with.host_bytes()), (0, state), "{zero:?}");
                let most = without.largest_live_bytes() - state + staged;
                assert!(with.largest_live_bytes() <= most, "{zero:?}: {} of {most}", with.largest_live_bytes());
                assert_eq!(with.categories().iter().map(|(_, bytes)| bytes).sum::<usize>(), with.arena_bytes());
            }
        }
    }
}

fn verified(programs: Vec<Program>, setup: &Setup) -> Result<Verified, String> {
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::On };
    let graph = link(programs).map_err(|violations| format!("{violations:?}"))?;
    verify(graph, &setup.sizes(), demands).map_err(|violations| format!("{violations:?}"))
}

/// The program without one kind of copy, and with a copy before the update.
#[test]
fn a_copy_that_is_missing_or_too_early_is_refused() {
    let setup = offloaded(ZERO_3);
    let unit = Unit::Layer(2);
    let is = |instr: &Instr, wanted: Instr| *instr == wanted;
    let refused = |change: &dyn Fn(&mut Vec<Instr>)| {
        let mut programs = setup.programs();
        change(&mut programs[1].instrs);
        verified(programs, &setup).err().unwrap_or_default()
    };
    assert_eq!(refused(&|_| {}), "");
    let without = |wanted| refused(&|instrs| instrs.retain(|instr| !is(instr, wanted)));
    let unfetched = without(Instr::FetchState { unit });
    assert!(unfetched.contains("needs the staged first moment of layer 2, which was never written"), "{unfetched}");
    let kept = without(Instr::OffloadState { unit });
    assert!(kept.contains("the staged first moment of layer 2, written by instruction"), "{kept}");
    let early = refused(&|instrs| {
        let place = |wanted| instrs.iter().position(|instr| is(instr, wanted)).expect("there");
        let (step, back) = (place(Instr::OptimizerStep { unit }), place(Instr::OffloadState { unit }));
        instrs.swap(step, back);
    });
    assert!(early.contains("needs the staged first moment of layer 2, which is gone"), "{early}");
    let mut plain = Setup { offload: Offload::None, ..setup.clone() }.programs();
    plain[1].instrs.push(Instr::OffloadState { unit });
    let foreign = verified(plain, &setup).expect_err("nothing is offloaded");
    assert!(foreign.contains("is about nothing that this rank has"), "{foreign}");
}

/// Each wait of and for a copy is missed by the verifier.
#[test]
fn every_wait_of_a_copy_is_needed() {
    let mut removed = 0;
    for zero in zero_forms() {
        let setup = offloaded(zero);
        let verified = verified(setup.programs(), &setup).expect("verified");
        removed += copies_without_a_wait(&verified);
    }
    assert!(removed > 100, "{removed} waits");
}

/// Updates of 1, copies as given, everything else nothing.
struct Copies {
    queue: Queue,
    copy: u64,
}

impl Durations for Copies {
    fn of(&self, _: &RankView, instr: Instr) -> u64 {
        match instr {
            Instr::OptimizerStep { .. } => 1,
            Instr::FetchState { .. } | Instr::OffloadState { .. } => self.copy,
            _ => 0,
        }
    }

    fn queues(&self) -> Queues {
        Queues {
            reduce: Queue::Compute,
            transfer: Queue::Compute,
            copies: self.queue,
            updated_gathers: UpdatedGathers::AfterUpdate,
            updates: Updates::AfterNorm,
            contention_per_mille: 0,
        }
    }
}

/// In line, copies and updates take turns. Side by side, copies of both ways and updates run at the same time: the
/// first fetch and the last copy back are alone, and each update is as long as a copy at least.
#[test]
fn copies_overlap_with_updates_and_with_each_other() {
    let setup = Setup { pp: 1, num_layers: 6, zero: ZeroStage::Off, tied: false, ..offloaded(ZeroStage::Off) };
    let graph = setup.graph();
    let units = graph.programs()[0].view.trained_units().count() as u64;
    let end = |queue, copy| StepTimes::new(&graph, &Copies { queue, copy }).end();
    assert_eq!(end(Queue::Compute, 5), units * (5 + 1 + 5));
    // A copy each way at a time, and of three units at most: the fetch of a unit waits for the copy back of the third
    // before it, which waits for its update.
    let beside = end(Queue::Own, 5);
    assert!(units * 5 + 1 + 5 <= beside && beside <= units * (5 + 1) + 5, "{beside} of {units} units");
    // Short copies overlap with updates, but for the first and the last.
    assert_eq!(end(Queue::Own, 1), 1 + units + 1);
}
