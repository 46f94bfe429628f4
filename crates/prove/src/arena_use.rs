//! How much of its arena each rank uses, seen from below the executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{Device, DeviceError, Op, Stream, Tensor};
use mesh::{Axis, Rank};
use train::{Engine, RankEngine, Setup, ThreadEngine};

use crate::poison::poison_arena;
use crate::runner::thread_engine;

/// Room that an arena gives each value: a multiple of so many bytes.
const ALIGNMENT_BYTES: usize = 64;

/// Bytes of the arena of one rank.
#[derive(Debug, Default)]
struct Measured {
    asked: AtomicUsize,
    used: AtomicUsize,
}

/// Threads of this process whose arenas are poisoned before their first operation and measured while they are used.
pub struct MeasuringEngine {
    inner: ThreadEngine,
    ranks: Vec<Arc<Measured>>,
}

impl MeasuringEngine {
    /// Threads for the ranks of `setup`.
    pub fn new(setup: &Setup) -> MeasuringEngine {
        let ranks = (0..setup.mesh.world_size()).map(|_| Arc::default()).collect();
        MeasuringEngine { inner: thread_engine(setup), ranks }
    }

    /// After a run: ranks whose arena is not as large as the plan says or is not used to its end, one sentence each.
    pub fn faults(&self, setup: &Setup) -> Vec<String> {
        let mut faults = Vec::new();
        for (rank, measured) in self.ranks.iter().enumerate() {
            let planned = setup.programs.arena_bytes(setup.mesh.coord(Rank(rank)).along(Axis::Pp));
            let (asked, used) = (measured.asked.load(Ordering::Relaxed), measured.used.load(Ordering::Relaxed));
            if [asked, used.next_multiple_of(ALIGNMENT_BYTES)] != [planned; 2] {
                faults.push(format!("rank {rank} plans {planned} bytes, asks for {asked} and uses {used}"));
            }
        }
        faults
    }
}

impl Engine for MeasuringEngine {
    fn open(&self, rank: Rank, arena_bytes: usize) -> Result<RankEngine, DeviceError> {
        let measured = Arc::clone(&self.ranks[rank.0]);
        measured.asked.store(arena_bytes, Ordering::Relaxed);
        let rank = poison_arena(self.inner.open(rank, arena_bytes)?, arena_bytes)?;
        Ok(RankEngine { device: Box::new(MeasuringDevice { inner: rank.device, measured }), ..rank })
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.inner.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.inner.failure()
    }
}

/// Notes the last byte that an operation touches. What groups move, operations write or read.
struct MeasuringDevice {
    inner: Box<dyn Device>,
    measured: Arc<Measured>,
}

impl Device for MeasuringDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let operands = op.operands();
        let touched = operands.reads().chain(operands.writes()).filter(|tensor| !tensor.is_empty());
        let end = touched.map(|tensor| tensor.bytes().end).max().unwrap_or(0);
        self.measured.used.fetch_max(end, Ordering::Relaxed);
        self.inner.submit(stream, op)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }
}
