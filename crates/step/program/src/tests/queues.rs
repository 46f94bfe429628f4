//! The event clock on engines with other queues.

use crate::{Durations, Instr, PassKind, Queue, Queues, RankView, StepGraph, StepTimes, UpdatedGathers, Updates};
use config::{ScheduleKind, Unit, ZeroStage};

use crate::tests::setup::Setup;

const IN_LINE: Queues = Queues {
    reduce: Queue::Compute,
    transfer: Queue::Compute,
    copies: Queue::Compute,
    updated_gathers: UpdatedGathers::AfterUpdate,
    updates: Updates::AfterNorm,
    contention_per_mille: 0,
};

/// Passes 10 each, reductions and gathers as given, everything else nothing.
struct Times {
    queues: Queues,
    reduction: u64,
    gather: u64,
}

impl Durations for Times {
    fn of(&self, _: &RankView, instr: Instr) -> u64 {
        match instr.pass() {
            Some(pass) if pass.kind == PassKind::Recompute => 0,
            Some(_) => 10,
            None if matches!(instr, Instr::ReduceGrads { .. }) => self.reduction,
            None if matches!(instr, Instr::GatherParams { .. }) => self.gather,
            None => 0,
        }
    }

    fn queues(&self) -> Queues {
        self.queues
    }
}

fn graph() -> StepGraph {
    Setup { num_layers: 2, pp: 1, num_microbatches: 2, zero: ZeroStage::Off, ..Setup::default() }.graph()
}

fn end(reduce: Queue, contention_per_mille: u64, reduction: u64) -> u64 {
    let queues = Queues { reduce, contention_per_mille, ..IN_LINE };
    StepTimes::new(&graph(), &Times { queues, reduction, gather: 0 }).end()
}

/// Passes of the step, and its reductions.
fn counts() -> (u64, u64) {
    let graph = graph();
    let instrs = &graph.programs()[0].instrs;
    let passes = instrs.iter().filter(|instr| instr.pass().is_some()).count();
    let reductions = instrs.iter().filter(|instr| matches!(instr, Instr::ReduceGrads { .. })).count();
    (passes as u64, reductions as u64)
}

#[test]
fn reductions_in_line_take_their_time_and_beside_they_hide_behind_what_computes() {
    let (passes, reductions) = counts();
    assert_eq!(end(Queue::Compute, 0, 25), 10 * passes + 25 * reductions);
    // Nothing is left to hide the last one; those before it queue up.
    let beside = end(Queue::Own, 0, 25);
    assert!(beside >= 10 * passes + 25 && beside < end(Queue::Compute, 0, 25), "{beside}");
}

#[test]
fn computing_takes_longer_while_a_reduction_is_under_way_beside_it() {
    // Short ones hide completely, so that what they slow down decides.
    let (alone, slowed) = (end(Queue::Own, 0, 4), end(Queue::Own, 500, 4));
    assert!(alone < slowed && slowed <= alone + 2 * counts().1, "{alone}, {slowed}: half of 4 more for each, at most");
}

#[test]
fn reductions_that_are_put_off_follow_the_last_pass() {
    let queues = Queues { reduce: Queue::Last, ..IN_LINE };
    let (graph, (passes, reductions)) = (graph(), counts());
    let times = StepTimes::new(&graph, &Times { queues, reduction: 25, gather: 0 });
    assert_eq!(times.end(), 10 * passes + 25 * reductions);
    let placed = graph.programs()[0].instrs.iter().zip(&times.ranks[0]);
    let starts = placed.filter(|(instr, _)| matches!(instr, Instr::ReduceGrads { .. })).map(|(_, times)| *times);
    let expected = (0..reductions).map(|n| (10 * passes + 25 * n, 10 * passes + 25 * (n + 1)));
    assert!(starts.eq(expected), "one after the other, after all passes");
}

/// Of two stages each begins with the gathers of its own units, in the order of their first uses; a pass waits for
/// those that it reads.
#[test]
fn gathers_of_the_step_before_overlap_with_forward_passes() {
    let graph = Setup { num_layers: 4, pp: 1, num_microbatches: 2, zero: ZeroStage::One, ..Setup::default() }.graph();
    let times = |updated_gathers, gather| {
        let queues = Queues { updated_gathers, ..IN_LINE };
        StepTimes::new(&graph, &Times { queues, reduction: 0, gather })
    };
    let gathers = |times: &StepTimes| -> Vec<(Unit, (u64, u64))> {
        let placed = graph.programs()[0].instrs.iter().zip(&times.ranks[0]);
        let unit = |instr: &Instr| if let Instr::GatherParams { unit } = instr { Some(*unit) } else { None };
        let mut found: Vec<_> = placed.filter_map(|(instr, time)| Some((unit(instr)?, *time))).collect();
        found.sort_by_key(|(_, (start, _))| *start);
        found
    };
    let without = times(UpdatedGathers::AfterUpdate, 0).end();
    let after = times(UpdatedGathers::AfterUpdate, 4);
    let number = gathers(&after).len() as u64;
    assert_eq!(after.end(), without + 4 * number, "at the end each is exposed");

    // A pass takes 10, so all but what the first pass reads is hidden.
    let overlapped = times(UpdatedGathers::OverlappedWithNextStep, 4);
    let placed = gathers(&overlapped);
    let expected: Vec<(u64, u64)> = (0..number).map(|n| (4 * n, 4 * (n + 1))).collect();
    assert_eq!(placed.iter().map(|(_, time)| *time).collect::<Vec<_>>(), expected);
    let read_first = placed.iter().filter(|(unit, _)| matches!(unit, Unit::Table | Unit::Embedding)).count() as u64;
    assert_eq!(overlapped.end(), without + 4 * read_first);

    // Where they are longer than passes, the step waits for the last, the head's, before its forward pass.
    let long = times(UpdatedGathers::OverlappedWithNextStep, 100);
    let passes_before = 1 + 4;
    assert!(long.end() >= 100 * number + without - 10 * passes_before, "{}", long.end());
    assert!(long.end() <= without + 100 * number);
}

/// Forward passes fill the wait for the first gradient, so that each rank computes without a pause; a later one begins
/// later. The norm makes the first wait for the last, by three forward passes of two units: without that barrier it
/// begins the next step.
#[test]
fn without_a_barrier_a_step_takes_as_long_as_its_slowest_rank() {
    let (pp, num_microbatches, kind) = (4, 12, ScheduleKind::ZeroBubbleH2);
    let stage_layers = Some(vec![1, 2, 2, 1]);
    let setup = Setup { num_layers: 6, pp, num_microbatches, kind, stage_layers, tied: false, ..Setup::default() };
    let graph = Setup { zero: ZeroStage::Off, ..setup }.graph();
    let times = |updates| {
        let queues = Queues { updates, ..IN_LINE };
        StepTimes::new(&graph, &Times { queues, reduction: 0, gather: 0 })
    };
    let busy = 12 * 3 * 2 * 10;
    let barrier = times(Updates::AfterNorm);
    assert_eq!((barrier.period(), barrier.end()), (busy + 3 * 2 * 10, busy + 3 * 2 * 10));
    let free = times(Updates::BeforeNorm);
    assert_eq!(free.period(), busy);
    assert_eq!(free.begins[0], 0, "the first rank has ended the step before first");
}
