//! How much of its arena each rank uses, seen from below the executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{
    ALIGN_BYTES, ArenaSize, Communicator, Device, DeviceError, Numerics, Op, Reduction, Stream, SumTree, Tensor,
};
use mesh::{Axis, Rank};
use testkit::layout::engine;
use testkit::poison::{is_poison, poison_arena};
use train::{Engine, EngineDescription, RankEngine, Setup};

/// Bytes of the arena of one rank.
#[derive(Debug, Default)]
struct Measured {
    asked: AtomicUsize,
    used: AtomicUsize,
}

impl Measured {
    fn touch(&self, tensor: Tensor) {
        if !tensor.is_empty() {
            self.used.fetch_max(tensor.bytes().end, Ordering::Relaxed);
        }
    }
}

/// Threads of this process whose arenas are poisoned before their first operation and measured while they are used.
pub struct MeasuringEngine {
    inner: Box<dyn Engine>,
    ranks: Vec<Arc<Measured>>,
}

impl MeasuringEngine {
    /// Threads for the ranks of `setup`.
    pub fn new(setup: &Setup) -> MeasuringEngine {
        let ranks = (0..setup.mesh.world_size()).map(|_| Arc::default()).collect();
        MeasuringEngine { inner: engine(setup, 1), ranks }
    }

    /// After a run: ranks whose arena is not as large as the plan says or is not used to its end, one sentence each.
    pub fn faults(&self, setup: &Setup) -> Vec<String> {
        let mut faults = Vec::new();
        for (rank, measured) in self.ranks.iter().enumerate() {
            let planned = setup.programs.arena_size(setup.mesh.coord(Rank(rank)).along(Axis::Pp)).end_bytes();
            let (asked, used) = (measured.asked.load(Ordering::Relaxed), measured.used.load(Ordering::Relaxed));
            if [asked, used.next_multiple_of(ALIGN_BYTES)] != [planned; 2] {
                faults.push(format!("rank {rank} plans {planned} bytes, asks for {asked} and uses {used}"));
            }
        }
        faults
    }
}

impl Engine for MeasuringEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let measured = Arc::clone(&self.ranks[rank.0]);
        measured.asked.store(size.end_bytes(), Ordering::Relaxed);
        let rank = poison_arena(self.inner.open(rank, size, numerics)?, size.end_bytes())?;
        Ok(measuring(rank, measured))
    }

    fn ranks(&self) -> Vec<Rank> {
        self.inner.ranks()
    }

    fn describe(&self) -> EngineDescription {
        self.inner.describe()
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.inner.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.inner.failure()
    }
}

/// The same rank, every tensor noted that its device or its groups are handed.
fn measuring(rank: RankEngine, measured: Arc<Measured>) -> RankEngine {
    let group = |inner: Box<dyn Communicator>| -> Box<dyn Communicator> {
        Box::new(MeasuringGroup { inner, measured: Arc::clone(&measured) })
    };
    let communicators = rank.communicators.wrapped(|_, inner| group(inner));
    RankEngine { device: Box::new(MeasuringDevice { inner: rank.device, measured }), communicators, ..rank }
}

struct MeasuringDevice {
    inner: Box<dyn Device>,
    measured: Arc<Measured>,
}

impl Device for MeasuringDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let operands = op.operands();
        operands.reads().chain(operands.writes()).for_each(|tensor| self.measured.touch(tensor));
        self.inner.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.measured.touch(to);
        self.inner.upload(stream, to, from)
    }

    /// To poison is not to use.
    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        if !is_poison(from) {
            self.measured.touch(to);
        }
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.measured.touch(from);
        self.inner.read(from, to)
    }

    device::forward_order!(inner);
}

struct MeasuringGroup {
    inner: Box<dyn Communicator>,
    measured: Arc<Measured>,
}

impl Communicator for MeasuringGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.measured.touch(x);
        self.inner.all_reduce(stream, x, reduction)
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.measured.touch(x);
        self.inner.reduce_scatter(stream, x, tree)
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.measured.touch(x);
        self.inner.all_gather(stream, x)
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.measured.touch(from);
        self.measured.touch(to);
        self.inner.all_to_all(stream, from, to)
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.measured.touch(from);
        self.measured.touch(to);
        self.inner.shift(stream, from, to)
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.measured.touch(x);
        self.inner.send(stream, to, tag, x)
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.measured.touch(x);
        self.inner.receive(stream, from, tag, x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawers::matrix;
    use prove::outcome_of;
    use testkit::models::proof_text;

    #[test]
    fn an_arena_that_is_not_used_to_its_end_is_found() {
        let setup = matrix()[0].oracle().layout().setup().unwrap_or_else(|error| panic!("{error}"));
        let engine = MeasuringEngine::new(&setup);
        let planned = setup.plan(0).arena_bytes();
        assert_eq!(engine.faults(&setup), [format!("rank 0 plans {planned} bytes, asks for 0 and uses 0")]);
        assert!(outcome_of(&setup, &engine, &proof_text()).is_ok());
        assert_eq!(engine.faults(&setup), [""; 0]);
    }
}
