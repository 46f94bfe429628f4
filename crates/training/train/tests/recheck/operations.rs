//! Results of operations that are wrong once, or now and then.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blame::CauseKind;
use config::{Recheck, TrainSpec};
use device::Tensor;
use mesh::{Coord, Rank};
use testkit::intercepted::intercept_ops;
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, SAMPLED_OPERATIONS, Setup};

use crate::recheck::{Draw, failure, flip, flips, four_ranks, losses, model};

/// Number of operations that ranks submit in the clean run, with rechecks.
fn count_operations(setup: &Setup) -> usize {
    let most = Arc::new(AtomicUsize::new(0));
    let wrap = |_: Coord, engine: RankEngine| {
        let (own, most) = (Cell::new(0), Arc::clone(&most));
        intercept_ops(engine, move |device, stream, op| {
            own.set(own.get() + 1);
            most.fetch_max(own.get(), Ordering::Relaxed);
            device.submit(stream, op)
        })
    };
    let engine = WrappedEngine::new(setup, &wrap);
    losses(setup, &engine, Recheck::All).expect("a clean run");
    most.load(Ordering::Relaxed)
}

#[test]
fn every_wrong_result_of_an_operation_is_found_and_the_wrong_computation_named() {
    let setup = four_ranks();
    let operations = count_operations(&setup);
    let mut draw = Draw(23);
    let mut named = [0, 0];
    for _ in 0..flips() {
        let (rank, nth, which, bit) =
            (draw.below(4), draw.below(operations * 9 / 10), draw.below(8), draw.below(1 << 20));
        let wrap = |coord: Coord, engine: RankEngine| {
            if setup.mesh.rank(coord) != Rank(rank) {
                return engine;
            }
            let left = Cell::new(nth);
            intercept_ops(engine, move |device, stream, op| {
                device.submit(stream, op)?;
                let operands = op.operands();
                let written: Vec<Tensor> = operands.writes().filter(|tensor| !tensor.is_empty()).collect();
                match left.replace(left.get().wrapping_sub(1)) {
                    0 if !written.is_empty() => flip(device, written[which % written.len()], bit),
                    _ => Ok(()),
                }
            })
        };
        let engine = WrappedEngine::new(&setup, &wrap);
        let failure = failure(&setup, &engine, Recheck::All);
        let place = format!("rank {rank}, operation {nth}, tensor {which}, bit {bit}: {failure}");
        assert_eq!((failure.rank, failure.kind), (Rank(rank), CauseKind::Corruption), "{place}");
        let first = failure.cause.ends_with("; the first of three computations was wrong");
        let second = failure.cause.ends_with("; the second of three computations was wrong");
        assert!(first || second, "{place}");
        named[usize::from(second)] += 1;
    }
    println!("wrong first computations {}, wrong second ones {}", named[0], named[1]);
}

/// Operations of the faulty rank for each one with a wrong result.
fn wrong() -> usize {
    if flips() < 200 { 20 } else { 1000 }
}

/// Operations for each one that `Recheck::Sample` computes twice.
const SAMPLED: f64 = SAMPLED_OPERATIONS as f64;

/// With p wrong results per operation and M operations per step, no sample meets one in n steps with probability (1 - p
/// / 256)^(n M). Here that is one in a million. `PLEACH_CASES=200` tries 200 ranks, and then p is 1 / 1,000.
#[test]
fn a_rank_that_is_wrong_now_and_then_is_named_by_samples() {
    let small = four_ranks();
    // Every operation is computed twice in the count of three steps.
    let of_step = count_operations(&small) / 6;
    let wrong = wrong();
    let missed = (1.0 - 1.0 / (wrong as f64 * SAMPLED)).powf(of_step as f64);
    let [steps, likely] = [1e-6_f64, 0.01].map(|missing| (missing.ln() / missed.ln()).ceil() as u32);
    let setup =
        Setup::new(model(), small.parallelism.clone(), TrainSpec { steps, ..small.train.clone() }).expect("legal");
    let mut found = vec![];
    for seed in 0..flips() {
        let faulty = Rank(seed as usize % 4);
        let wrap = |coord: Coord, engine: RankEngine| {
            if setup.mesh.rank(coord) != faulty {
                return engine;
            }
            let draw = RefCell::new(Draw(seed));
            intercept_ops(engine, move |device, stream, op| {
                device.submit(stream, op)?;
                let operands = op.operands();
                // Sums of a few numbers decide what the run does, whatever the weights are.
                let written = operands.writes().find(|tensor| tensor.len() >= 16);
                let mut draw = draw.borrow_mut();
                let (is_wrong, at) = (draw.below(wrong) == 0, draw.below(1 << 10));
                // The lowest bit of a number, so that the run learns on.
                written.filter(|_| is_wrong).map_or(Ok(()), |tensor| flip(device, tensor, 32 * at))
            })
        };
        let failure = failure(&setup, &WrappedEngine::new(&setup, &wrap), Recheck::Sample);
        assert_eq!((failure.rank, failure.kind), (faulty, CauseKind::Corruption), "seed {seed}: {failure}");
        found.push(failure.step);
    }
    found.sort_unstable();
    let (median, in_time) = (found[found.len() / 2], found.iter().filter(|step| **step <= likely).count());
    println!(
        "{} ranks with one wrong result in {wrong} operations, {of_step} operations a step, named after {median} steps in the \
         median and {} at most; {in_time} within {likely}, where 99 % are expected; 1 in a million takes more than {steps}",
        found.len(),
        found[found.len() - 1]
    );
}
