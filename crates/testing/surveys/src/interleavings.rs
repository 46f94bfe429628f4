//! Streams in any order: cells of the support matrix run without overlap, with it, and on streams that are delayed at
//! random, and must learn the same bits.

use std::cell::Cell as Seed;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use comm::Timeouts;
use config::{Overlap, Parallelism};
use cpu::{ArenaReader, CpuDevice};
use device::{
    Arena, ArenaSize, Communicator, Device, DeviceError, Numerics, OnFailure, Op, Reduction, Stream, StreamQueues,
    SumTree, Tensor,
};
use mesh::Rank;
use prove::{Outcome, outcome_of};
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
#[derive(Clone)]
struct Delays {
    queues: Arc<StreamQueues>,
    state: Rc<Seed<u64>>,
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

struct ShufflingDevice {
    inner: CpuDevice,
    delays: Delays,
}

impl Device for ShufflingDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }

    device::forward_order!(inner);
}

struct ShufflingGroup {
    inner: Box<dyn Communicator>,
    delays: Delays,
}

impl Communicator for ShufflingGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.all_reduce(stream, x, reduction)
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.reduce_scatter(stream, x, tree)
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.all_gather(stream, x)
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.all_to_all(stream, from, to)
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.shift(stream, from, to)
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.send(stream, to, tag, x)
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.delays.before(stream);
        self.inner.receive(stream, from, tag, x)
    }
}

impl Engine for ShufflingEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let arena = Arc::new(Arena::new(size.end_bytes())?);
        let on_failure: OnFailure = Arc::new(|_, _| {});
        let queues = Arc::new(StreamQueues::start(&STREAMS, &rank.to_string(), &on_failure)?);
        let state = Rc::new(Seed::new(self.seed << 16 | rank.0 as u64));
        let delays = Delays { queues: Arc::clone(&queues), state };
        let communicators = self.threads.communicators(rank, &arena, &queues)?;
        let communicators = communicators
            .wrapped(|_, inner| Box::new(ShufflingGroup { inner, delays: delays.clone() }) as Box<dyn Communicator>);
        let memory = Box::new(ArenaReader::new(Arc::clone(&arena)));
        let inner = CpuDevice::new(arena)?.with_products(numerics.products).with_queues(queues)?;
        Ok(RankEngine { device: Box::new(ShufflingDevice { inner, delays }), memory, communicators })
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
    let shuffled = ShufflingEngine { threads: ThreadEngine::new(setup.mesh, patient).with_queues(&STREAMS), seed };
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
