//! A run on CPU devices, counted in the loops of the kernels and in the transport.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use comm::{Counting, Counts};
use cpu::{ArenaReader, CpuDevice};
use device::{Arena, ArenaSize, Device, DeviceError, Dtype, Numerics, Op, Stream, Tensor};
use mesh::{Axis, Rank};
use program::PeerGroup;
use testkit::intercepted::{Call, intercept_calls};
use train::{
    Engine, EngineDescription, Observer, Ports, RankEngine, Setup, StepReport, StopRequest, ThreadEngine, Worker,
};

use crate::conservation::cases::Case;
use crate::conservation::recorded::{StepWork, Work, ends_step};

/// Work that no record knows of, done once on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    Nothing,
    /// The first operation of this name is executed twice.
    Operation(&'static str),
    /// The first all-reduce over tensor parallelism is done twice.
    AllReduce,
}

/// The value of the arena's bytes before anything is computed: floats of this pattern are enormous, and would be seen
/// in the loss.
const POISON: u8 = 0x7e;
/// Room past the end of the planned arena, to see that nothing is written there.
const BEHIND_BYTES: usize = 1 << 16;

/// An engine whose transports and kernels count.
pub struct CountingEngine<'a> {
    setup: &'a Setup,
    threads: ThreadEngine,
    sent: Vec<Arc<Counts>>,
    multiply_adds: Vec<Arc<AtomicU64>>,
    extra: Extra,
}

impl<'a> CountingEngine<'a> {
    pub fn new(setup: &'a Setup, extra: Extra) -> CountingEngine<'a> {
        let sent = RefCell::new(vec![]);
        let threads = testkit::layout::thread_engine(setup).wrapped(|transport| {
            let (counting, counts) = Counting::new(transport);
            sent.borrow_mut().push(counts);
            Arc::new(counting)
        });
        let multiply_adds = setup.mesh.ranks().map(|_| Arc::default()).collect();
        CountingEngine { setup, threads, sent: sent.into_inner(), multiply_adds, extra }
    }

    fn plan(&self, rank: Rank) -> &program::RankPlan {
        self.setup.plan(self.setup.mesh.coord(rank).along(Axis::Pp))
    }

    /// Everything but state, which begins as zeros, and the room past the end of the plan.
    fn poisoned(&self, rank: Rank) -> Tensor {
        let plan = self.plan(rank);
        let end = plan.host_bytes() + plan.arena_bytes() + BEHIND_BYTES;
        let first = plan.scratch().offset_bytes;
        Tensor::new(first, 1, (end - first) / 4, Dtype::F32)
    }

    fn so_far(&self, rank: usize) -> StepWork {
        let sent = self.sent[rank].total();
        StepWork {
            multiply_adds: self.multiply_adds[rank].load(Ordering::Relaxed),
            sent_bytes: sent.bytes,
            sent_messages: sent.messages,
        }
    }
}

impl Engine for CountingEngine<'_> {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let arena = Arc::new(Arena::new(size.end_bytes() + BEHIND_BYTES)?);
        let communicators = self.threads.communicators(rank, &arena, &Arc::default())?;
        let memory = Box::new(ArenaReader::new(Arc::clone(&arena)));
        let cpu = CpuDevice::new(arena)?.with_products(numerics.products);
        let poisoned = self.poisoned(rank);
        cpu.write(poisoned, &vec![POISON; poisoned.size_bytes()])?;
        let is_due = Cell::new(self.extra != Extra::Nothing);
        let published = Arc::clone(&self.multiply_adds[rank.0]);
        let device = Box::new(Metered { cpu, published, extra: self.extra, is_due });
        let rank = RankEngine { device, memory, communicators };
        if self.extra != Extra::AllReduce {
            return Ok(rank);
        }
        let is_due = Cell::new(true);
        Ok(intercept_calls(rank, PeerGroup::TENSOR, move |_, group, stream, call| {
            if matches!(call, Call::AllReduce(..)) && is_due.take() {
                call.perform(group, stream)?;
            }
            call.perform(group, stream)
        }))
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

/// Publishes what the kernels have counted.
struct Metered {
    cpu: CpuDevice,
    published: Arc<AtomicU64>,
    extra: Extra,
    is_due: Cell<bool>,
}

impl Device for Metered {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.cpu.submit(stream, op)?;
        if self.extra == Extra::Operation(op.name()) && self.is_due.take() {
            self.cpu.submit(stream, op)?;
        }
        self.published.store(self.cpu.multiply_adds(), Ordering::Relaxed);
        Ok(())
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.cpu.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.cpu.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.cpu.read(from, to)
    }

    device::forward_order!(cpu);
}

struct Counter<'a> {
    engine: CountingEngine<'a>,
    /// Totals at the end of each step, by rank.
    totals: Vec<Mutex<Work>>,
}

impl Observer for Counter<'_> {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if ends_step(worker) {
            let number = worker.ports.communicators.world().position();
            let mut totals = self.totals[number].lock().unwrap();
            totals.steps.push(self.engine.so_far(number));
            totals.peak_bytes = self.last_changed(worker, Rank(number))?;
        }
        Ok(())
    }
}

impl Counter<'_> {
    /// After the last byte that is no longer poison.
    fn last_changed(&self, worker: &Worker<'_>, number: Rank) -> Result<usize, DeviceError> {
        let poisoned = self.engine.poisoned(number);
        let mut bytes = vec![0; poisoned.size_bytes()];
        worker.ports.device.read(poisoned, &mut bytes)?;
        let last = bytes.chunks_exact(4).rposition(|float| float != [POISON; 4]);
        Ok(poisoned.offset_bytes + last.map_or(0, |last| 4 * (last + 1)))
    }
}

/// The counted work of each rank of `setup`.
pub fn count(case: &Case, setup: &Setup, extra: Extra) -> Vec<Work> {
    let engine = CountingEngine::new(setup, extra);
    let counter = Counter { engine, totals: setup.mesh.ranks().map(|_| Mutex::default()).collect() };
    let tokens = case.tokens();
    let ports = Ports::new(&tokens, &counter);
    train::run(setup, &counter.engine, ports).unwrap();
    counter.totals.into_iter().map(|totals| differences(totals.into_inner().unwrap())).collect()
}

fn differences(totals: Work) -> Work {
    let mut before = StepWork::default();
    let steps = totals.steps.iter().map(|total| {
        let step = StepWork {
            multiply_adds: total.multiply_adds - before.multiply_adds,
            sent_bytes: total.sent_bytes - before.sent_bytes,
            sent_messages: total.sent_messages - before.sent_messages,
        };
        before = *total;
        step
    });
    Work { steps: steps.collect(), peak_bytes: totals.peak_bytes }
}
