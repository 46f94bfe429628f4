//! Every wait of a stream for an event that orders work on the same memory is needed: without it the bits are others, or
//! the GPU itself finds the race. Without any other one they are the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use config::{ChunkOrder, ContextKind, Overlap, Tied, ZeroStage};
use softgpu::{Pairs, Settings, WorkLog};
use testkit::soft_gpus::{gpus_of, soft_driver};
use testkit::wrapped_gpu::{Fate, GpuCall, Judge, WrappedDriver};

use testkit::layout::Layout;

use crate::rig::{On, ZERO_THREE, layout, outcome};
use crate::shared_sequences::{FOUR, shared};
use crate::work_order::needed;

/// Small runs whose waits are left out one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// One step of two layers on two stages, each on a GPU of its own: few waits, of every kind.
    TwoStages,
    /// Two steps on dp 2 x tp 2 x pp 2, each rank on a GPU of its own, with this sharding.
    EightRanks(Tied, ZeroStage),
    /// One step on cp 2 x tp 2, each rank on a GPU of its own: blocks of keys and values are passed around.
    Ring,
}

impl Tried {
    /// `PLEACH_WAITS=all` tries eight ranks and a ring as well.
    fn from_environment() -> Vec<Tried> {
        match std::env::var("PLEACH_WAITS").as_deref() {
            Ok("all") => {
                vec![
                    Tried::TwoStages,
                    Tried::Ring,
                    Tried::EightRanks(Tied::Yes, ZeroStage::One),
                    Tried::EightRanks(Tied::No, ZERO_THREE),
                ]
            }
            Ok(other) => panic!("PLEACH_WAITS is {other:?}; set it to \"all\", or not at all"),
            Err(_) => vec![Tried::TwoStages],
        }
    }

    fn layout(self) -> Layout {
        let (mut layout, steps, global_batch) = match self {
            Tried::TwoStages => (layout(Tied::Yes, [1, 1, 2], ZERO_THREE, Overlap::On, 1), 1, 4),
            Tried::EightRanks(tied, zero) => (layout(tied, [2, 2, 2], zero, Overlap::On, 2), 2, 8),
            Tried::Ring => (shared(Tied::No, FOUR, ContextKind::Ring, ChunkOrder::Balanced, ZERO_THREE), 1, 4),
        };
        layout.model.num_layers = 2;
        (layout.train.steps, layout.train.global_batch, layout.train.warmup_steps) = (steps, global_batch, 0);
        layout
    }

    fn num_gpus(self) -> usize {
        match self {
            Tried::TwoStages => 2,
            Tried::Ring => 4,
            Tried::EightRanks(..) => 8,
        }
    }

    /// Orders of streams that are tried for a wait: of many ranks few orders show it.
    fn seeds(self) -> u64 {
        match self {
            Tried::TwoStages => 2,
            Tried::Ring | Tried::EightRanks(..) => 8,
        }
    }
}

/// A wait: the GPU, the stream by the order of creation, and its number there.
type Wait = (usize, usize, usize);

/// Records the calls of each GPU, and leaves one wait out.
#[derive(Default)]
struct Waits {
    left_out: Option<Wait>,
    calls: Mutex<BTreeMap<usize, Vec<GpuCall>>>,
}

/// Which waits of a GPU's calls have which place in `calls`.
fn waits_of(gpu: usize, calls: &[GpuCall]) -> BTreeMap<Wait, usize> {
    let (mut streams, mut counts) = (vec![], BTreeMap::<usize, usize>::new());
    let mut waits = BTreeMap::new();
    for (place, call) in calls.iter().enumerate() {
        match *call {
            GpuCall::Create(stream) => streams.push(stream),
            GpuCall::Wait(stream, _) => {
                let index = streams.iter().position(|known| *known == stream).expect("created");
                let number = counts.entry(index).or_default();
                waits.insert((gpu, index, *number), place);
                *number += 1;
            }
            GpuCall::Allocate
            | GpuCall::Copy(_)
            | GpuCall::Record(..)
            | GpuCall::Synchronize(_)
            | GpuCall::Load
            | GpuCall::Launch(_) => {}
        }
    }
    waits
}

impl Waits {
    fn judge(&self, gpu: usize, call: GpuCall) -> Fate {
        let mut all = self.calls.lock().expect("whole");
        let calls = all.entry(gpu).or_default();
        calls.push(call);
        let (GpuCall::Wait(..), Some(left_out)) = (call, self.left_out) else { return Fate::Done };
        let place = waits_of(gpu, calls).get(&left_out).copied();
        if place == Some(calls.len() - 1) { Fate::LeftOut } else { Fate::Done }
    }
}

/// A run on GPUs that order streams by `seed`; the calls, the work that uses memory of other work, and the outcome.
struct Run {
    waits: Arc<Waits>,
    log: WorkLog,
    outcome: Result<prove::Outcome, prove::ProofError>,
}

fn run(tried: Tried, left_out: Option<Wait>, seed: u64) -> Option<Run> {
    let waits = Arc::new(Waits { left_out, ..Waits::default() });
    let judge: Judge = {
        let waits = Arc::clone(&waits);
        Arc::new(move |gpu, call| waits.judge(gpu, call))
    };
    let log = WorkLog::default();
    let soft = soft_driver(vec![Settings { seed, ..Settings::default() }; tried.num_gpus()]);
    let soft = if left_out.is_none() { soft.with_log(&log) } else { soft };
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)))?;
    let outcome = outcome(&tried.layout(), &On::Gpus(gpus));
    Some(Run { waits, log, outcome })
}

/// All waits of a run, the needed ones first.
fn waits_by_need(tried: Tried, expected: &prove::Outcome) -> Option<[Vec<Wait>; 2]> {
    let mut pairs = BTreeMap::<usize, Pairs>::new();
    let mut calls = BTreeMap::new();
    // Copies of the same values are writes in one order and none in another.
    for seed in 0..2 {
        let run = run(tried, None, seed)?;
        assert!(run.outcome.expect("a run on GPUs") == *expected, "nothing is left out");
        run.log.pairs().into_iter().for_each(|(gpu, of_gpu)| pairs.entry(gpu).or_default().extend(of_gpu));
        calls.clone_from(&run.waits.calls.lock().expect("whole"));
    }
    let [mut needed_waits, mut others] = [vec![], vec![]];
    for (gpu, calls) in &calls {
        let places = needed(calls, &pairs.remove(gpu).unwrap_or_default());
        for (wait, place) in waits_of(*gpu, calls) {
            if places.contains(&place) { needed_waits.push(wait) } else { others.push(wait) }
        }
    }
    Some([needed_waits, others])
}

#[test]
fn every_wait_that_orders_work_on_the_same_memory_is_needed() {
    for tried in Tried::from_environment() {
        let expected = outcome(&tried.layout(), &On::Cpus).expect("a run on CPUs");
        let Some([needed, others]) = waits_by_need(tried, &expected) else { return };
        println!("{tried:?}: {} waits are needed, {} are not: {others:?}", needed.len(), others.len());
        let is_caught = |wait: Wait, seed: u64| {
            let outcome = run(tried, Some(wait), seed).expect("NVRTC").outcome;
            outcome.map_or(true, |outcome| outcome != expected)
        };
        let missed = needed.iter().filter(|wait| !(0..tried.seeds()).any(|seed| is_caught(**wait, seed)));
        let missed: Vec<_> = missed.inspect(|wait| println!("{tried:?}: {wait:?} is missed")).collect();
        let wrong = others.iter().filter(|wait| is_caught(**wait, 0));
        let wrong: Vec<_> = wrong.inspect(|wait| println!("{tried:?}: {wait:?} is needed as well")).collect();
        assert!(missed.is_empty() && wrong.is_empty(), "{tried:?}: missed {missed:?}, needed as well {wrong:?}");
    }
}
