//! Every wait of a stream for an event is needed: without it the bits are others, or the GPU itself finds the race. Those that
//! the host's own reading implies are listed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use config::{Overlap, Tied};
use gpu::StreamHandle;
use softgpu::{Settings, SoftDriver};
use testkit::soft_gpus::gpus_of;
use testkit::wrapped_gpu::{Fate, GpuCall, Judge, WrappedDriver};

use testkit::layout::Layout;

use crate::rig::{On, ZERO_THREE, layout, outcome};

/// One step of two layers on two stages, of two microbatches: few waits, of every kind.
fn small() -> Layout {
    let mut layout = layout(Tied::Yes, [1, 1, 2], ZERO_THREE, Overlap::On, 1);
    (layout.model.num_layers, layout.train.global_batch, layout.train.warmup_steps) = (2, 4, 0);
    layout
}

/// A wait: the GPU, the stream by the order of creation, and its number there.
type Wait = (usize, usize, usize);

/// The last waits of the streams that compute: optimizer steps wait for the norm on the stream of reductions, whose outcome the host has
/// read before, after the end of all streams.
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

/// One step on two stages, each on a GPU of its own that orders streams by `seed`; what is kept of the waits, and the outcome.
fn run(left_out: Option<Wait>, seed: u64) -> Option<(Arc<Waits>, Result<prove::Outcome, prove::ProofError>)> {
    let waits = Arc::new(Waits { left_out, ..Waits::default() });
    let judge: Judge = {
        let waits = Arc::clone(&waits);
        Arc::new(move |gpu, call| waits.judge(gpu, call))
    };
    let soft = SoftDriver::new(2, Settings { seed, ..Settings::default() });
    let gpus = gpus_of(Arc::new(WrappedDriver::new(Arc::new(soft), judge)))?;
    Some((waits, outcome(&small(), &On::Gpus(gpus))))
}

#[test]
fn every_wait_is_needed_or_implied() {
    let expected = outcome(&small(), &On::Cpus).expect("a run on CPUs");
    let Some((clean, outcome)) = run(None, 0) else { return };
    assert!(outcome.expect("a run on GPUs") == expected, "nothing is left out");
    let counts = clean.counts.lock().expect("whole").clone();
    let all: Vec<Wait> =
        counts.iter().flat_map(|((gpu, stream), count)| (0..*count).map(|number| (*gpu, *stream, number))).collect();
    let is_caught = |wait: Wait| {
        (0..2).any(|seed| {
            let (_, outcome) = run(Some(wait), seed).expect("NVRTC");
            outcome.map_or(true, |outcome| outcome != expected)
        })
    };
    let missed: Vec<Wait> = all.iter().copied().filter(|wait| !is_caught(*wait)).collect();
    assert_eq!(missed, IMPLIED, "of {} waits", all.len());
}
