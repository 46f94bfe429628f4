//! Activations in memory of the host: instructions, memory, times, and faults that the verifier finds.

use std::collections::BTreeSet;

use crate::{
    ActivationPart, Category, ContributionOrder, Demands, Durations, Instr, PlannedLife, Program, Queue, Queues,
    RankView, StepTimes, UpdatedGathers, Updates, Value, Verified, link, verify,
};
use config::{Microbatch, Offload, Overlap, Recompute, ScheduleKind, Unit, ZeroStage};

use crate::tests::setup::{KINDS, RECOMPUTES, Setup, small_sizes, zero_forms};
use crate::tests::waits::copies_without_a_wait;

fn offloaded() -> Setup {
    Setup { offload: Offload::Activations, ..Setup::default() }
}

/// One rank, one microbatch, six layers.
fn one_rank() -> Setup {
    Setup { pp: 1, num_layers: 6, num_microbatches: 1, zero: ZeroStage::Off, tied: false, ..offloaded() }
}

fn is_copy(instr: &Instr) -> bool {
    matches!(instr, Instr::OffloadActs { .. } | Instr::FetchActs { .. })
}

/// The passes of `program`, and copies of activations.
fn passes_and_copies(program: &Program) -> String {
    let shown = program.instrs.iter().filter(|instr| instr.pass().is_some() || is_copy(instr));
    shown.map(Instr::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_copy_follows_the_forward_pass_and_another_comes_one_turn_before_the_backward_pass() {
    let programs = Setup { num_layers: 3, recompute: Recompute::Selective, ..one_rank() }.programs();
    let expected = "\
forward embedding, microbatch 0
forward layer 0, microbatch 0
offload activations of layer 0, microbatch 0
forward layer 1, microbatch 0
offload activations of layer 1, microbatch 0
forward layer 2, microbatch 0
forward head, microbatch 0
backward input head, microbatch 0
backward weight head, microbatch 0
fetch activations of layer 1, microbatch 0
recompute layer 2, microbatch 0
backward input layer 2, microbatch 0
backward weight layer 2, microbatch 0
fetch activations of layer 0, microbatch 0
recompute layer 1, microbatch 0
backward input layer 1, microbatch 0
backward weight layer 1, microbatch 0
recompute layer 0, microbatch 0
backward input layer 0, microbatch 0
backward weight layer 0, microbatch 0
backward input embedding, microbatch 0
backward weight embedding, microbatch 0";
    assert_eq!(passes_and_copies(&programs[0]), expected);
}

fn verified(programs: Vec<Program>, setup: &Setup, overlap: Overlap) -> Result<Verified, String> {
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Any, overlap };
    let graph = link(programs).map_err(|violations| format!("{violations:?}"))?;
    verify(graph, &small_sizes(setup), demands).map_err(|violations| format!("{violations:?}"))
}

/// Layers and microbatches whose kept activations are in the arena while each instruction runs: the most of any.
fn most_sets(program: &Program, lives: &[PlannedLife]) -> usize {
    let kept = |life: &&PlannedLife| {
        matches!(life.value, Value::SavedUntilWeight { unit: Unit::Layer(_), .. } | Value::SavedInput { .. })
    };
    let at = |index: usize| {
        let alive = lives.iter().filter(kept).filter(|life| (life.start..life.end).contains(&index));
        alive.map(|life| (life.value.microbatch(), life.value.to_string())).collect::<BTreeSet<_>>().len()
    };
    (0..program.instrs.len()).map(at).max().unwrap_or(0)
}

/// The layer that computes, the one before it that is copied, and the one after it that is fetched: however many layers
/// and microbatches are in flight. In one queue nothing is copied meanwhile.
#[test]
fn at_most_three_layers_have_activations_in_an_arena() {
    let whole = KINDS.into_iter().filter(|kind| {
        matches!(kind, ScheduleKind::GPipe | ScheduleKind::OneForwardOneBackward | ScheduleKind::Interleaved { .. })
    });
    for kind in whole {
        for (pp, layers, num_microbatches) in [(1, 9, 3), (2, 12, 6), (4, 12, 8)] {
            let setup = Setup { pp, kind, num_layers: layers, num_microbatches, ..offloaded() };
            for (overlap, most) in [(Overlap::Off, 2), (Overlap::On, 3)] {
                let plain = Setup { offload: Offload::None, ..setup.clone() };
                let verified = verified(setup.programs(), &setup, overlap).expect("verified");
                let plan = |setup: &Setup| crate::plan_memory(&setup.graph(), &small_sizes(setup), overlap);
                for ((program, plan), plain) in
                    verified.programs().iter().zip(&verified.plan().ranks).zip(&plan(&plain).ranks)
                {
                    let found = most_sets(program, plan.lives());
                    assert!(found <= most, "{kind:?} {pp} {overlap:?}: {found}");
                    assert!(plan.largest_live_bytes() <= plain.largest_live_bytes(), "{kind:?} {pp} {overlap:?}");
                    assert_eq!(plain.host_bytes(), 0);
                }
            }
        }
    }
}

/// The host has a place for each layer and microbatch in flight, and no more: its memory is packed without a gap.
#[test]
fn the_host_has_a_place_for_what_is_in_flight() {
    for (num_microbatches, in_flight) in [(1, 5), (4, 5)] {
        let setup = Setup { num_microbatches, ..one_rank() };
        let verified = verified(setup.programs(), &setup, Overlap::On).expect("verified");
        let plan = &verified.plan().ranks[0];
        let sizes = small_sizes(&setup);
        let of = |part: ActivationPart| {
            let value = Value::OnHost { unit: Unit::Layer(0), microbatch: Microbatch(0), part };
            sizes.bytes(value).next_multiple_of(device::ALIGN_BYTES)
        };
        let set: usize =
            [ActivationPart::Output, ActivationPart::UntilInput, ActivationPart::UntilWeight].map(of).iter().sum();
        // The last layer's backward pass follows at once.
        assert_eq!(plan.host_bytes(), in_flight * set, "{num_microbatches}");
        assert_eq!(plan.categories().iter().map(|(_, bytes)| bytes).sum::<usize>(), plan.arena_bytes());
        assert!(plan.categories().iter().all(|(category, _)| *category != Category::Staged));
    }
}

/// The program without one kind of copy, with a copy too early, and with one of what is not offloaded.
#[test]
fn a_copy_that_is_missing_or_too_early_is_refused() {
    let setup = one_rank();
    let (unit, microbatch) = (Unit::Layer(2), Microbatch(0));
    let (fetch, offload) = (Instr::FetchActs { unit, microbatch }, Instr::OffloadActs { unit, microbatch });
    let refused = |change: &dyn Fn(&mut Vec<Instr>)| {
        let mut programs = setup.programs();
        change(&mut programs[0].instrs);
        verified(programs, &setup, Overlap::On).err().unwrap_or_default()
    };
    assert_eq!(refused(&|_| {}), "");
    let without = |wanted| refused(&|instrs| instrs.retain(|instr| *instr != wanted));
    let unfetched = without(fetch);
    assert!(unfetched.contains("needs the saved until input of layer 2, microbatch 0, which is gone"), "{unfetched}");
    let kept = without(offload);
    assert!(kept.contains("needs the saved until input of layer 2 in memory of the host, microbatch 0"), "{kept}");
    let swapped = |one: Instr, other: Instr| {
        refused(&|instrs| {
            let place = |wanted| instrs.iter().position(|instr| *instr == wanted).expect("there");
            let (one, other) = (place(one), place(other));
            instrs.swap(one, other);
        })
    };
    let early = swapped(Instr::Forward { unit, microbatch }, offload);
    assert!(early.contains("needs the saved until input of layer 2, microbatch 0, which was never written"), "{early}");
    let late = swapped(fetch, Instr::BackwardInput { unit, microbatch });
    assert!(late.contains("needs the saved until input of layer 2, microbatch 0, which is gone"), "{late}");
    let mut plain = Setup { offload: Offload::None, ..setup.clone() }.programs();
    plain[0].instrs.push(offload);
    let foreign = verified(plain, &setup, Overlap::On).expect_err("nothing is offloaded");
    assert!(foreign.contains("is about nothing that this rank has"), "{foreign}");
}

/// Each wait of and for a copy is missed by the verifier.
#[test]
fn every_wait_of_a_copy_is_needed() {
    let mut removed = 0;
    for (number, zero) in zero_forms().into_iter().enumerate() {
        let recompute = RECOMPUTES[number % RECOMPUTES.len()];
        let setup = Setup { zero, recompute, num_layers: 8, offload: Offload::All, ..Setup::default() };
        let verified = verified(setup.programs(), &setup, Overlap::On).expect("verified");
        removed += copies_without_a_wait(&verified);
    }
    assert!(removed > 100, "{removed} waits");
}

/// Passes of layers of 10, copies as given, everything else nothing.
struct Copies {
    queue: Queue,
    copy: u64,
}

impl Durations for Copies {
    fn of(&self, _: &RankView, instr: Instr) -> u64 {
        match instr.pass() {
            Some(pass) if matches!(pass.unit, Unit::Layer(_)) => 10,
            Some(_) | None => u64::from(is_copy(&instr)) * self.copy,
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

/// Of six layers five are copied each way. Side by side, copies that are shorter than a pass cost nothing; longer ones
/// hold up the forward passes, of which each waits for the copy of the layer two before, and the backward passes.
#[test]
fn copies_overlap_with_passes() {
    let graph = one_rank().graph();
    let end = |queue, copy| StepTimes::new(&graph, &Copies { queue, copy }).end();
    let passes = 6 * (10 + 10 + 10);
    assert_eq!(end(Queue::Compute, 5), passes + 2 * 5 * 5);
    assert_eq!(end(Queue::Own, 5), passes);
    assert_eq!(end(Queue::Own, 10), passes);
    // Forward passes 2 to 5 wait for copies of 0 to 3, and the head for that of 4. Backward passes 4 to 0 wait for
    // their fetches, of which the first is issued with backward pass 5, and each is after the one before.
    let copy = 30;
    let forward = 10 + 5 * copy;
    let backward = 5 * copy + 20;
    assert_eq!(end(Queue::Own, copy), forward + backward);
}
