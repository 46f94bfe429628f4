//! Every wait of a stream for an event is needed: without it the bits are others, or the GPU itself finds the race.
//! Those that the host's own reading implies are listed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use config::{ChunkOrder, ContextKind, Overlap, Tied, ZeroStage};
use gpu::StreamHandle;
use softgpu::Settings;
use testkit::soft_gpus::{gpus_of, soft_driver};
use testkit::wrapped_gpu::{Fate, GpuCall, Judge, WrappedDriver};

use testkit::layout::Layout;

use crate::rig::{On, ZERO_THREE, layout, outcome};
use crate::shared_sequences::{FOUR, shared};

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

    /// Whether the bits are right without this wait. Of eight ranks and of the ring none is listed.
    fn is_implied(self, wait: Wait) -> bool {
        match self {
            Tried::TwoStages => IMPLIED.contains(&wait),
            Tried::EightRanks(..) | Tried::Ring => false,
        }
    }
}

/// A wait: the GPU, the stream by the order of creation, and its number there.
type Wait = (usize, usize, usize);

/// The last waits of the streams that compute: optimizer steps wait for the norm on the stream of reductions, whose
/// outcome the host has read before, after the end of all streams.
const IMPLIED: [Wait; 3] = [(0, 0, 6), (0, 0, 7), (1, 0, 7)];

/// Counts waits, and leaves one out.
#[derive(Default)]
struct Waits {
    left_out: Option<Wait>,
    /// Streams of each GPU.
    streams: Mutex<BTreeMap<usize, Vec<StreamHandle>>>,
    /// Waits so far, by GPU and stream.
    counts: Mutex<BTreeMap<(usize, usize), usize>>,
}

impl Waits {
    fn judge(&self, gpu: usize, call: GpuCall) -> Fate {
        let stream = match call {
            GpuCall::Create(stream) => {
                self.streams.lock().expect("whole").entry(gpu).or_default().push(stream);
                return Fate::Done;
            }
            GpuCall::Wait(stream) => stream,
            GpuCall::Allocate
            | GpuCall::Copy(_)
            | GpuCall::Record(_)
            | GpuCall::Synchronize(_)
            | GpuCall::Load
            | GpuCall::Launch(_) => return Fate::Done,
        };
        let streams = self.streams.lock().expect("whole");
        let index = streams[&gpu].iter().position(|known| *known == stream).expect("created");
        let mut counts = self.counts.lock().expect("whole");
        let number = counts.entry((gpu, index)).or_default();
        *number += 1;
        if self.left_out == Some((gpu, index, *number - 1)) { Fate::LeftOut } else { Fate::Done }
    }
}

/// A run on GPUs that order streams by `seed`; what is kept of the waits, and the outcome.
fn run(
    tried: Tried,
    left_out: Option<Wait>,
    seed: u64,
) -> Option<(Arc<Waits>, Result<prove::Outcome, prove::ProofError>)> {
    let waits = Arc::new(Waits { left_out, ..Waits::default() });
    let judge: Judge = {
        let waits = Arc::clone(&waits);
        Arc::new(move |gpu, call| waits.judge(gpu, call))
    };
    let soft = soft_driver(vec![Settings { seed, ..Settings::default() }; tried.num_gpus()]);
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)))?;
    Some((waits, outcome(&tried.layout(), &On::Gpus(gpus))))
}

#[test]
fn every_wait_is_needed_or_implied() {
    for tried in Tried::from_environment() {
        let expected = outcome(&tried.layout(), &On::Cpus).expect("a run on CPUs");
        let Some((clean, outcome)) = run(tried, None, 0) else { return };
        assert!(outcome.expect("a run on GPUs") == expected, "nothing is left out");
        let counts = clean.counts.lock().expect("whole").clone();
        let of_stream = |((gpu, stream), count): (&(usize, usize), &usize)| {
            let (gpu, stream) = (*gpu, *stream);
            (0..*count).map(move |number| (gpu, stream, number)).collect::<Vec<Wait>>()
        };
        let all: Vec<Wait> = counts.iter().flat_map(of_stream).collect();
        let is_caught = |wait: Wait| {
            (0..tried.seeds()).any(|seed| {
                let (_, outcome) = run(tried, Some(wait), seed).expect("NVRTC");
                outcome.map_or(true, |outcome| outcome != expected)
            })
        };
        let (mut missed, mut implied) = (vec![], vec![]);
        for wait in all.iter().copied() {
            if tried.is_implied(wait) {
                implied.push(wait);
            }
            if !is_caught(wait) {
                let count = counts[&(wait.0, wait.1)];
                println!("{tried:?}: without {wait:?} of {count} the bits are right");
                missed.push(wait);
            }
        }
        println!("{tried:?}: {} waits, {} of them implied", all.len(), implied.len());
        assert_eq!(missed, implied, "{tried:?}: of {} waits", all.len());
    }
}
