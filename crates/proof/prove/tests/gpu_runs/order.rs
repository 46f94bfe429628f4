//! Every wait of a stream for an event that orders work on the same memory is needed: without it the bits are others,
//! or the GPU itself finds the race. Any other one is spare: the log of work shows that others order all of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use config::{ChunkOrder, ContextKind, Offload, Overlap, Tied, ZeroStage};
use softgpu::{Settings, WorkLog};
use testkit::soft_gpus::{gpus_of, soft_driver};
use testkit::wrapped_gpu::{CallOutcome, GpuCall, Judge, WrappedDriver};

use testkit::layout::Layout;

use crate::gpu_runs::rig::{On, ZERO_THREE, layout, outcome};
use crate::gpu_runs::shared_sequences::{FOUR, shared};
use crate::gpu_runs::work_order::need;

/// Small runs whose waits are left out one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// One step of two layers on two stages, each on a GPU of its own: few waits, of every kind.
    TwoStages,
    /// Two steps of two layers on one GPU, whose optimizer state and activations are in memory of the host.
    Offloaded,
    /// Two steps on dp 2 x tp 2 x pp 2, each rank on a GPU of its own, with this sharding.
    EightRanks(Tied, ZeroStage),
    /// One step on cp 2 x tp 2, each rank on a GPU of its own: blocks of keys and values are passed around.
    Ring,
}

impl Tried {
    /// `PLEACH_CASES=all` tries eight ranks and a ring as well.
    fn from_environment() -> Vec<Tried> {
        let mut tried = vec![Tried::TwoStages, Tried::Offloaded];
        if needs::all_cases!() {
            let of_eight = [(Tied::Yes, ZeroStage::One), (Tied::No, ZERO_THREE)];
            tried.push(Tried::Ring);
            tried.extend(of_eight.map(|(tied, zero)| Tried::EightRanks(tied, zero)));
        }
        tried
    }

    fn layout(self) -> Layout {
        let (mut layout, steps, global_batch) = match self {
            Tried::TwoStages => (layout(Tied::Yes, [1, 1, 2], ZERO_THREE, Overlap::On, 1), 1, 4),
            Tried::Offloaded => {
                let mut layout = layout(Tied::Yes, [1, 1, 1], ZeroStage::Off, Overlap::On, 2);
                layout.train.offload = Offload::All;
                (layout, 2, 4)
            }
            Tried::EightRanks(tied, zero) => (layout(tied, [2, 2, 2], zero, Overlap::On, 2), 2, 8),
            Tried::Ring => (shared(Tied::No, FOUR, ContextKind::Ring, ChunkOrder::Balanced, ZERO_THREE), 1, 4),
        };
        layout.model.num_layers = 2;
        (layout.train.steps, layout.train.global_batch, layout.train.warmup_steps) = (steps, global_batch, 0);
        layout
    }

    fn num_gpus(self) -> usize {
        match self {
            Tried::Offloaded => 1,
            Tried::TwoStages => 2,
            Tried::Ring => 4,
            Tried::EightRanks(..) => 8,
        }
    }

    /// Orders of streams that are tried for a wait: of many ranks few orders show it.
    fn seeds(self) -> u64 {
        match self {
            Tried::TwoStages | Tried::Offloaded => 2,
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

/// The waits of a GPU's calls, each with its place there.
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
            | GpuCall::Transfer(..)
            | GpuCall::Host(_)
            | GpuCall::Copy(_)
            | GpuCall::Record(..)
            | GpuCall::Synchronize(_)
            | GpuCall::Load
            | GpuCall::Launch(_)
            | GpuCall::CreateGraph(_)
            | GpuCall::SetNode(..)
            | GpuCall::LaunchGraph(..) => {}
        }
    }
    waits
}

impl Waits {
    fn judge(&self, gpu: usize, call: GpuCall) -> CallOutcome {
        let mut all = self.calls.lock().expect("whole");
        let calls = all.entry(gpu).or_default();
        calls.push(call);
        let (GpuCall::Wait(..), Some(left_out)) = (call, self.left_out) else { return CallOutcome::Done };
        let place = waits_of(gpu, calls).get(&left_out).copied();
        if place == Some(calls.len() - 1) { CallOutcome::LeftOut } else { CallOutcome::Done }
    }
}

/// A run on GPUs.
struct Run {
    waits: Arc<Waits>,
    log: WorkLog,
    outcome: Result<prove::Outcome, prove::ProofError>,
}

impl Run {
    /// One on GPUs that order streams by `seed`.
    fn of(tried: Tried, left_out: Option<Wait>, seed: u64) -> Run {
        let waits = Arc::new(Waits { left_out, ..Waits::default() });
        let judge: Judge = {
            let waits = Arc::clone(&waits);
            Arc::new(move |gpu, call| waits.judge(gpu, call))
        };
        let log = WorkLog::default();
        let soft = soft_driver(vec![Settings { seed, ..Settings::default() }; tried.num_gpus()]).with_log(&log);
        let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)));
        let outcome = outcome(&tried.layout(), &On::Gpus(gpus));
        Run { waits, log, outcome }
    }

    /// All waits.
    fn all_waits(&self) -> Vec<Wait> {
        let calls = self.waits.calls.lock().expect("whole");
        calls.iter().flat_map(|(gpu, calls)| waits_of(*gpu, calls).into_keys()).collect()
    }

    /// Why `wait` orders work of this very run, if it does. Ranks on other threads may submit work sooner or later in
    /// another run.
    fn need(&self, wait: Wait) -> Option<String> {
        let calls = self.waits.calls.lock().expect("whole");
        let calls = calls.get(&wait.0).map_or(&[][..], Vec::as_slice);
        let pairs = self.log.pairs().remove(&wait.0).unwrap_or_default();
        waits_of(wait.0, calls).get(&wait).and_then(|place| need(calls, &pairs, *place))
    }
}

/// How runs without a wait end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// With other bits, or with a race that the GPU finds.
    Caught,
    /// With the same bits, and all work on the same memory has its order from other waits.
    Spare,
    /// With the same bits in every order of streams that was tried, although work has no order.
    Missed,
}

fn end(tried: Tried, wait: Wait, expected: &prove::Outcome) -> End {
    for seed in 0..tried.seeds() {
        let run = Run::of(tried, Some(wait), seed);
        if run.outcome.as_ref().map_or(true, |outcome| outcome != expected) {
            return End::Caught;
        }
        match run.need(wait) {
            None => return End::Spare,
            Some(need) => println!("{tried:?}: {wait:?}, seed {seed}: {need}"),
        }
    }
    End::Missed
}

#[needs::cuda]
#[test]
fn every_wait_that_orders_work_on_the_same_memory_is_caught() {
    for tried in Tried::from_environment() {
        let expected = outcome(&tried.layout(), &On::Cpus).expect("a run on CPUs");
        let clean = Run::of(tried, None, 0);
        assert!(clean.outcome.as_ref().expect("a run on GPUs") == &expected, "nothing is left out");
        let mut ends = BTreeMap::<End, Vec<Wait>>::new();
        for wait in clean.all_waits() {
            let end = end(tried, wait, &expected);
            println!("{tried:?}: {wait:?} {end:?}");
            ends.entry(end).or_default().push(wait);
        }
        let count = |end| ends.get(&end).map_or(0, Vec::len);
        println!("{tried:?}: {} waits are caught, {} are spare", count(End::Caught), count(End::Spare));
        // Between two steps every stream waits for every other, also for those that the run does not use.
        assert!(2 * count(End::Caught) > count(End::Spare), "{tried:?}: many waits order work");
        assert_eq!(ends.get(&End::Missed), None, "{tried:?}: missed");
    }
}
