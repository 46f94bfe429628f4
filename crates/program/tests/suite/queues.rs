//! The event clock on engines with other queues.

use config::ZeroStage;
use program::{Durations, Instr, PassKind, Queue, Queues, RankView, StepGraph, StepTimes};

use crate::setup::Setup;

/// Passes 10 each, reductions as given, everything else nothing.
struct Times {
    queues: Queues,
    reduction: u64,
}

impl Durations for Times {
    fn of(&self, _: &RankView, instr: Instr) -> u64 {
        match instr.pass() {
            Some(pass) if pass.kind == PassKind::Recompute => 0,
            Some(_) => 10,
            None if matches!(instr, Instr::ReduceGrads { .. }) => self.reduction,
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
    let queues = Queues { reduce, transfer: Queue::Compute, contention_per_mille };
    StepTimes::new(&graph(), &Times { queues, reduction }).end()
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
    let queues = Queues { reduce: Queue::Last, transfer: Queue::Compute, contention_per_mille: 0 };
    let (graph, (passes, reductions)) = (graph(), counts());
    let times = StepTimes::new(&graph, &Times { queues, reduction: 25 });
    assert_eq!(times.end(), 10 * passes + 25 * reductions);
    let placed = graph.programs()[0].instrs.iter().zip(&times.ranks[0]);
    let starts = placed.filter(|(instr, _)| matches!(instr, Instr::ReduceGrads { .. })).map(|(_, times)| *times);
    let expected = (0..reductions).map(|n| (10 * passes + 25 * n, 10 * passes + 25 * (n + 1)));
    assert!(starts.eq(expected), "one after the other, behind all passes");
}
