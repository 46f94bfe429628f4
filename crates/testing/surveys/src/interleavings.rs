//! Streams in any order: cells of the support matrix run without overlap, with it, and on streams that are delayed at
//! random, and must learn the same bits.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use comm::Timeouts;
use config::{Overlap, Parallelism};
use cpu::{ArenaReader, CpuDevice};
use device::{Arena, ArenaSize, Device, DeviceError, Numerics, OnFailure, Op, Stream, StreamQueues, Tensor};
use mesh::Rank;
use prove::{Outcome, outcome_of};
use testkit::intercepted::{Call, Group, Interceptor, intercept};
use testkit::layout::{Layout, thread_engine};
use testkit::models::proof_text;
use train::{Engine, EngineDescription, RankEngine, ThreadEngine};

use crate::drawers::matrix;
use crate::sample::draw;
use crate::space::Point;

/// Streams of a rank that all run on threads of their own: the thread that issues runs ahead of everything.
const STREAMS: [Stream; 4] = [Stream::Compute, Stream::Reduce, Stream::Transfer, Stream::Shift];

/// Delays are shorter, in microseconds.
const LONGEST: u64 = 60;

/// Ranks whose streams run in order, each piece of work delayed by a time of its own.
struct ShufflingEngine {
    threads: ThreadEngine,
    seed: u64,
}

/// Delays work.
struct Delays {
    queues: Arc<StreamQueues>,
    state: Cell<u64>,
}

impl Delays {
    /// The next piece of work of `stream` starts later: mostly not at all, sometimes much.
    fn before(&self, stream: Stream) {
        let mixed = (self.state.get() ^ self.state.get() >> 31).wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_add(1);
        self.state.set(mixed);
        let micros = (mixed >> 33) % LONGEST;
        if let Some(queue) = self.queues.of(stream).filter(|_| mixed >> 60 == 0) {
            queue.submit(Box::new(move || {
                std::thread::sleep(Duration::from_micros(micros));
                Ok(())
            }));
        }
    }
}

impl Interceptor for Delays {
    fn submit(&self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.before(stream);
        device.submit(stream, op)
    }

    fn upload(&self, device: &dyn Device, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.before(stream);
        device.upload(stream, to, from)
    }

    fn call(&self, _: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
        self.before(stream);
        group.communicator.call(stream, call)
    }
}

impl Engine for ShufflingEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let arena = Arc::new(Arena::new(size.end_bytes())?);
        let on_failure: OnFailure = Arc::new(|_, _| {});
        let queues = Arc::new(StreamQueues::start(&STREAMS, &rank.to_string(), &on_failure)?);
        let communicators = self.threads.communicators(rank, &arena, &queues)?;
        let memory = Box::new(ArenaReader::new(Arc::clone(&arena)));
        let device =
            Box::new(CpuDevice::new(arena)?.with_products(numerics.products).with_queues(Arc::clone(&queues))?);
        let delays = Delays { queues, state: Cell::new(self.seed << 16 | rank.0 as u64) };
        Ok(intercept(RankEngine { device, memory, communicators }, delays))
    }

    fn ranks(&self) -> Vec<Rank> {
        self.threads.ranks()
    }

    fn describe(&self) -> EngineDescription {
        self.threads.describe()
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.threads.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.threads.failure()
    }
}

/// The same layout with communication that overlaps with layers.
pub fn overlapped(layout: &Layout) -> Layout {
    Layout { parallelism: Parallelism { overlap: Some(Overlap::On), ..layout.parallelism.clone() }, ..layout.clone() }
}

/// `count` cells of the support matrix: every ZeRO form, schedule, way to share matrices, recomputation and format is
/// among a few hundred.
pub fn cells(count: usize, seed: u32) -> Vec<Point> {
    let legal = matrix().into_iter().filter(Point::is_legal).collect();
    draw(legal, count, seed, 1)
}

/// Whether all figures have the same bits. Norms of steps that overflow are not a number; they count as equal.
fn same_bits(one: &Outcome, other: &Outcome) -> bool {
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<u64>>();
    (bits(&one.losses), bits(&one.norms)) == (bits(&other.losses), bits(&other.norms))
        && (&one.gradients, &one.weights) == (&other.gradients, &other.weights)
}

/// Runs `cell` without overlap, with it on threads, and with every stream delayed at random.
///
/// # Errors
/// Other bits, or a run that fails, with the name of the cell.
pub fn compare(cell: &Point, seed: u64) -> Result<(), String> {
    let (layout, text) = (cell.layout(), proof_text());
    let failed = |how: &str, error: &dyn std::fmt::Display| format!("{cell}, {how}: {error}");
    let plain = layout.outcome(&text).map_err(|error| failed("without overlap", &error))?;
    let setup = overlapped(&layout).setup().map_err(|error| failed("with overlap", &error))?;
    let patient = Timeouts::new(Duration::from_secs(60));
    let shuffled = ShufflingEngine { threads: ThreadEngine::new(setup.groups(), patient).with_queues(&STREAMS), seed };
    let engines: [(String, &dyn Engine); 2] =
        [("threads".into(), &thread_engine(&setup)), (format!("streams delayed by seed {seed}"), &shuffled)];
    for (how, engine) in engines {
        let outcome = outcome_of(&setup, engine, &text).map_err(|error| failed(&how, &error))?;
        if !same_bits(&outcome, &plain) {
            return Err(failed(&how, &"other bits than without overlap"));
        }
    }
    Ok(())
}
