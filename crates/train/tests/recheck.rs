//! Silent corruption: bits that flip in state between two updates, and in the results of operations, are found on the
//! rank where they flipped. `PLEACH_FLIPS=200` draws 200 of each kind instead of a few.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use blame::CauseKind;
use config::{Overlap, Parallelism, Precision, Products, Recheck, TrainSpec, ZeroStage};
use device::{Device, DeviceError, Op, Stream, Tensor};
use mesh::{Coord, Rank};
use testkit::intercepted::intercept_ops;
use testkit::layout::engine;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{
    Engine, Observer, Ports, RankEngine, RankFailure, SAMPLED_OPERATIONS, Setup, StepReport, TrainError, Wish, run,
};

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

#[derive(Default)]
struct Losses(Mutex<Vec<u64>>);

impl Observer for Losses {
    fn step(&self, report: &StepReport) -> Wish {
        self.0.lock().expect("no panic").push(report.loss.to_bits());
        Wish::Continue
    }
}

fn model() -> config::ModelSpec {
    config::ModelSpec { num_layers: 2, ..proof_model(Style::Llama, 4, true) }
}

fn setup(parallelism: Parallelism, train: TrainSpec) -> Setup {
    Setup::new(model(), parallelism, TrainSpec { steps: 3, global_batch: 4, ..train }).expect("legal")
}

/// Two replicas of two tensor-parallel ranks, with sharded optimizer state.
fn four_ranks() -> Setup {
    setup(Parallelism { zero: ZeroStage::One, ..plain_layout(2, 2, 1, 1) }, proof_training())
}

fn losses(setup: &Setup, engine: &dyn Engine, recheck: Recheck) -> Result<Vec<u64>, TrainError> {
    let losses = Losses::default();
    run(setup, engine, Ports { recheck, ..Ports::new(&TEXT, &losses) })?;
    Ok(losses.0.into_inner().expect("no panic"))
}

/// A small generator: places of flips are the same in every run of the test.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn flips() -> u64 {
    std::env::var("PLEACH_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(6)
}

/// Flips a bit of a tensor; `at` counts bits from its start.
fn flip(device: &dyn Device, tensor: Tensor, at: usize) -> Result<(), DeviceError> {
    let row =
        at / 8 % (tensor.rows * tensor.cols * tensor.dtype.size_bytes()) / (tensor.cols * tensor.dtype.size_bytes());
    let row = tensor.rows_of(row..row + 1);
    let mut bytes = vec![0; row.size_bytes()];
    device.read(row, &mut bytes)?;
    let byte = at / 8 % bytes.len();
    bytes[byte] ^= 1 << (at % 8);
    device.write(row, &bytes)
}

fn failure(setup: &Setup, engine: &dyn Engine, recheck: Recheck) -> RankFailure {
    match losses(setup, engine, recheck) {
        Err(TrainError::Rank(failure)) => failure,
        Err(other) => panic!("not the failure of a rank: {other}"),
        Ok(losses) => panic!("the flip was not found in {} steps", losses.len()),
    }
}

/// The tensors that the optimizer writes, by the order of its calls: in step 1 they are noted, and in step 2 one of
/// them has a bit flipped at an operation before the optimizer. Each operation is computed twice; the flip is before
/// the first of two computations, so that both read it.
fn flips_state(rank: RankEngine, which: usize, bit: usize, delay: usize) -> RankEngine {
    let (state, updates, since) = (RefCell::new(Vec::<Tensor>::new()), Cell::new(0), Cell::new(0));
    intercept_ops(rank, move |device, stream: Stream, op: &Op| {
        if let Op::AdamW { param, first_moment, second_moment, .. } = op {
            state
                .borrow_mut()
                .extend([*param, *first_moment, *second_moment].iter().filter(|tensor| !tensor.is_empty()));
            updates.set(updates.get() + 1);
            since.set(0);
        } else if updates.get() > 0 {
            since.set(since.get() + 1);
            if since.get() == delay {
                let state = state.borrow();
                flip(device, state[which % state.len()], bit)?;
            }
        }
        device.submit(stream, op)
    })
}

#[test]
fn every_flip_in_weights_and_moments_is_found_before_the_next_update() {
    let setup = four_ranks();
    let mut draw = Draw(11);
    for _ in 0..flips() {
        let (rank, which, bit, delay) = (draw.below(4), draw.below(1000), draw.below(1 << 20), 1 + 2 * draw.below(20));
        let wrap = |coord: Coord, engine: RankEngine| {
            if setup.mesh.rank(coord) == Rank(rank) { flips_state(engine, which, bit, delay) } else { engine }
        };
        let engine = WrappedEngine::new(&setup, &wrap);
        let failure = failure(&setup, &engine, Recheck::All);
        let place = format!("rank {rank}, tensor {which}, bit {bit}, operation {delay}: {failure}");
        assert_eq!((failure.rank, failure.kind, failure.step), (Rank(rank), CauseKind::Corruption, 2), "{place}");
        assert_eq!(failure.instruction, "gradient norm", "{place}");
        assert!(failure.cause.contains("changed since step 1 updated it: XXH3 "), "{place}");
        assert!(failure.cause.ends_with("read again, it is the same: memory keeps wrong bits"), "{place}");
    }
}

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
const WRONG: usize = 20;
/// Operations for each one that `Recheck::Sample` computes twice.
const SAMPLED: f64 = SAMPLED_OPERATIONS as f64;

/// With p wrong results per operation and M operations per step, no sample meets one in n steps with probability (1 - p
/// / 256)^(n M). Here that is one in a million. `PLEACH_FLIPS=200` tries 200 ranks.
#[test]
fn a_rank_that_is_wrong_now_and_then_is_named_by_samples() {
    let small = four_ranks();
    // Every operation is computed twice in the count of three steps.
    let of_step = count_operations(&small) / 6;
    let missed = (1.0 - 1.0 / (WRONG as f64 * SAMPLED)).powf(of_step as f64);
    let steps = (1e-6_f64.ln() / missed.ln()).ceil() as u32;
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
                let (is_wrong, at) = (draw.below(WRONG) == 0, draw.below(1 << 10));
                // The lowest bit of a number, so that the run learns on.
                written.filter(|_| is_wrong).map_or(Ok(()), |tensor| flip(device, tensor, 32 * at))
            })
        };
        let failure = failure(&setup, &WrappedEngine::new(&setup, &wrap), Recheck::Sample);
        assert_eq!((failure.rank, failure.kind), (faulty, CauseKind::Corruption), "seed {seed}: {failure}");
        found.push(failure.step);
    }
    println!("found in steps {found:?} of {steps}, with {of_step} operations a step");
}

/// The bits of a run do not depend on the checks, and nothing is found where nothing is wrong.
/// `PLEACH_CLEAN_STEPS=1000` does 1,000 steps under each of ten layouts, with either check.
#[test]
fn checks_change_no_bit_and_raise_no_alarm() {
    let steps = std::env::var("PLEACH_CLEAN_STEPS").ok().and_then(|count| count.parse().ok()).unwrap_or(2);
    let zero = |zero, layout| Parallelism { zero, ..layout };
    let overlapped = |layout| Parallelism { overlap: Some(Overlap::On), ..layout };
    let single = || TrainSpec { steps, ..proof_training() };
    let bf16 = || TrainSpec { precision: Precision::Bf16(Products::Chained), ..single() };
    let layouts = [
        (plain_layout(1, 1, 1, 2), single()),
        (plain_layout(2, 1, 1, 2), single()),
        (plain_layout(1, 2, 1, 1), single()),
        (plain_layout(1, 1, 2, 1), bf16()),
        (plain_layout(2, 2, 1, 1), bf16()),
        (zero(ZeroStage::One, plain_layout(2, 2, 1, 1)), single()),
        (zero(ZeroStage::One, plain_layout(2, 1, 2, 1)), bf16()),
        (zero(ZeroStage::One, plain_layout(2, 2, 2, 1)), single()),
        (overlapped(plain_layout(2, 1, 2, 1)), single()),
        (overlapped(zero(ZeroStage::One, plain_layout(2, 2, 1, 1))), bf16()),
    ];
    for (parallelism, train) in layouts {
        let setup = Setup::new(model(), parallelism, TrainSpec { global_batch: 4, ..train }).expect("legal");
        let plain = losses(&setup, &*engine(&setup, 1), Recheck::Off).expect("a clean run");
        for recheck in [Recheck::Sample, Recheck::All] {
            let checked = losses(&setup, &*engine(&setup, 1), recheck).expect("no false alarm");
            assert_eq!(checked, plain, "{recheck:?} under {:?}", setup.parallelism.degrees);
        }
    }
}
