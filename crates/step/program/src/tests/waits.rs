//! Waits order every conflict on an engine whose streams run side by side, and none is there without need.

use std::collections::BTreeMap;

use crate::{Access, accesses};
use crate::{
    ContributionOrder, Demands, PlannedLife, Program, Purpose, RankPlan, Value, Verified, Waits, plan_memory, verify,
};
use config::{Overlap, Recompute, ScheduleKind, Unit, ZeroStage};
use device::Stream;

use crate::tests::random::Random;
use crate::tests::setup::{KINDS, OFFLOADS, RECOMPUTES, Setup, small_sizes, zero_forms};
use crate::tests::{oracle, reference};

fn overlapped(setup: &Setup) -> Verified {
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::On };
    verify(setup.graph(), &small_sizes(setup), demands)
        .unwrap_or_else(|violations| panic!("{setup:?}: {violations:#?}"))
}

/// Case `seed` of schedules x ZeRO x prefetch x recomputation x tied tables x purposes x offload.
fn drawn(seed: u64) -> Setup {
    let mut random = Random(seed);
    let (pp, kind) = (1 + random.below(4), KINDS[random.below(KINDS.len())]);
    Setup {
        pp,
        kind,
        num_layers: (pp * kind.stages_per_rank()).saturating_sub(2) + random.below(5),
        num_microbatches: (1 + random.below(6)).next_multiple_of(kind.microbatch_group(pp)),
        zero: zero_forms()[random.below(zero_forms().len())],
        recompute: RECOMPUTES[random.below(RECOMPUTES.len())],
        tied: random.below(2) == 0,
        learned_positions: random.below(2) == 0,
        purpose: [Purpose::Train, Purpose::Train, Purpose::Train, Purpose::Evaluate][random.below(4)],
        offload: OFFLOADS[random.below(OFFLOADS.len())],
        ..Setup::default()
    }
}

/// By plain definition: what has ended before each instruction begins, as sets.
fn ended_before(program: &Program, waits: &Waits) -> Vec<Vec<bool>> {
    let mut before: Vec<Vec<bool>> = vec![];
    for (index, instr) in program.instrs.iter().enumerate() {
        let mut own = vec![false; program.instrs.len()];
        let earlier = (0..index).rev().find(|other| program.instrs[*other].stream() == instr.stream());
        for source in waits.of(index).chain(earlier) {
            own[source] = true;
            own.iter_mut().zip(&before[source]).for_each(|(own, other)| *own |= other);
        }
        before.push(own);
    }
    before
}

/// Instructions that touch the bytes of a value, and how.
type Touches = Vec<(usize, Access)>;

/// Every instruction that touches bytes of a value in its life.
fn touched(program: &Program, plan: &RankPlan) -> Vec<(PlannedLife, Touches)> {
    let mut lives: BTreeMap<(Value, usize), (PlannedLife, Touches)> =
        plan.lives().iter().map(|life| ((life.value, life.start), (*life, vec![]))).collect();
    for (index, instr) in program.instrs.iter().enumerate() {
        accesses(*instr, &program.view, |value, access| {
            let life = lives.range_mut((value, 0)..=(value, index)).next_back();
            if let Some((_, (_, touched))) = life {
                touched.push((index, access));
            }
        });
    }
    lives.into_values().collect()
}

/// Pairs of conflicting accesses that are in no order: all pairs are looked at.
fn conflicts(program: &Program, plan: &RankPlan, waits: &Waits) -> Vec<(usize, usize)> {
    let (before, lives) = (ended_before(program, waits), touched(program, plan));
    let is_open = |first: usize, second: usize| first < second && !before[second][first];
    let bytes = |life: &PlannedLife| {
        life.extent.offset_bytes..life.extent.offset_bytes + life.extent.len_bytes.next_multiple_of(device::ALIGN_BYTES)
    };
    let mut open = vec![];
    for (life, accesses) in &lives {
        for (other, others) in &lives {
            let is_same = (life.value, life.start) == (other.value, other.start);
            let (own, theirs) = (bytes(life), bytes(other));
            let shares = own.start < theirs.end && theirs.start < own.end && !own.is_empty();
            for (second, access) in accesses {
                for (first, earlier) in others {
                    let conflicts = [*access, *earlier].contains(&Access::Write);
                    if (is_same && conflicts || !is_same && shares) && is_open(*first, *second) {
                        open.push((*first, *second));
                    }
                }
            }
        }
    }
    let mut state: BTreeMap<Value, Touches> = BTreeMap::new();
    for (second, instr) in program.instrs.iter().enumerate() {
        accesses(*instr, &program.view, |value, access| {
            if value.is_state() {
                let touched = state.entry(value).or_default();
                let conflicts = |earlier: &Access| [access, *earlier].contains(&Access::Write);
                open.extend(
                    touched
                        .iter()
                        .filter(|(first, earlier)| conflicts(earlier) && is_open(*first, second))
                        .map(|(first, _)| (*first, second)),
                );
                touched.push((second, access));
            }
        });
    }
    open
}

#[test]
fn no_conflict_is_left_in_no_order() {
    for seed in 0..400 {
        let setup = drawn(seed);
        let verified = overlapped(&setup);
        let ranks = verified.programs().iter().zip(&verified.plan().ranks).zip(verified.waits());
        for ((program, plan), waits) in ranks {
            assert_eq!(conflicts(program, plan, waits), [], "{setup:?}, rank {}", program.view.pp);
        }
    }
}

#[test]
fn streams_in_any_order_compute_what_a_loop_does() {
    for seed in 0..1000 {
        let setup = drawn(seed);
        let verified = overlapped(&setup);
        let outcome = oracle::run(&verified, seed).unwrap_or_else(|fault| panic!("{setup:?}: {}", fault.0));
        assert_eq!(outcome, reference::reference(&verified.programs()[0].view), "{setup:?}");
    }
}

#[test]
fn each_wait_is_missed_by_the_verifier() {
    let mut removed = 0;
    for seed in 0..50 {
        let setup = drawn(seed);
        let verified = overlapped(&setup);
        for (rank, waits) in verified.waits().iter().enumerate() {
            for wait in waits.iter() {
                let mut others = verified.waits().to_vec();
                others[rank] = waits.without(wait);
                let found = verified.conflicts(&others);
                let named = format!("instruction {}, ", wait.0);
                assert!(
                    found.iter().any(|violation| violation.message.contains(&named)),
                    "{setup:?}: rank {rank} without {wait:?}: {found:?}"
                );
                removed += 1;
            }
        }
    }
    assert!(removed > 2000, "{removed} waits");
}

/// Without waits, streams that advance at random damage what others read: the oracle above can fail.
#[test]
fn streams_without_waits_compute_something_else() {
    let damaged = |seed: &u64| {
        let verified = overlapped(&drawn(*seed));
        let none: Vec<Waits> = verified.programs().iter().map(|program| Waits::none(program.instrs.len())).collect();
        let outcome = oracle::run_with(&verified, &none, *seed);
        outcome.is_err() || outcome.is_ok_and(|outcome| outcome != reference::reference(&verified.programs()[0].view))
    };
    let count = (0..100).filter(damaged).count();
    assert!(count >= 90, "{count} of 100");
}

/// The bytes that overlap costs: at most those that reductions of one unit touch.
#[test]
fn plans_grow_by_little_and_never_shrink_below_what_lives() {
    for (zero, kind) in zero_forms().into_iter().zip(KINDS.into_iter().cycle()) {
        let setup = Setup { zero, kind, num_layers: 12, num_microbatches: 8, ..Setup::default() };
        let (graph, sizes) = (setup.graph(), setup.sizes());
        let (without, with) = (plan_memory(&graph, &sizes, Overlap::Off), plan_memory(&graph, &sizes, Overlap::On));
        for (without, with) in without.ranks.iter().zip(&with.ranks) {
            let layer = sizes.units.of(Unit::Layer(0)).unreduced + sizes.units.of(Unit::Table).unreduced;
            let most = without.largest_live_bytes() + 2 * layer;
            assert!(with.largest_live_bytes() <= most, "{zero:?} {kind:?}: {} {}", with.largest_live_bytes(), most);
        }
    }
}

#[test]
fn one_queue_waits_for_nothing() {
    let setup =
        Setup { zero: ZeroStage::One, kind: ScheduleKind::GPipe, recompute: Recompute::None, ..Setup::default() };
    let demands = Demands { capacity_bytes: None, order: ContributionOrder::Ascending, overlap: Overlap::Off };
    let verified = verify(setup.graph(), &small_sizes(&setup), demands).unwrap();
    assert!(verified.waits().iter().all(|waits| waits.iter().next().is_none()));
}

/// Leaves out each wait of and for a copy between memory of the host and the arena, one at a time, and expects the
/// verifier to name the instruction. Returns the number of waits.
pub fn copies_without_a_wait(verified: &Verified) -> usize {
    let mut removed = 0;
    for (rank, waits) in verified.waits().iter().enumerate() {
        let program = &verified.programs()[rank];
        let is_copy = |index: &usize| matches!(program.instrs[*index].stream(), Stream::Fetch | Stream::Offload);
        for wait in waits.iter().filter(|(waiting, awaited)| is_copy(waiting) || is_copy(awaited)) {
            let mut others: Vec<Waits> = verified.waits().to_vec();
            others[rank] = waits.without(wait);
            let named = format!("instruction {}, ", wait.0);
            let found = verified.conflicts(&others);
            assert!(found.iter().any(|violation| violation.message.contains(&named)), "rank {rank}: {wait:?}");
            removed += 1;
        }
    }
    removed
}
