//! How much of its arena each rank uses, seen from below the executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{ALIGN_BYTES, Device, DeviceError, Op, Stream, Tensor};
use mesh::{Axis, Rank};
use testkit::intercepted::{Call, Group, Interceptor, intercept};
use testkit::layout::engine;
use testkit::poison::{is_poison, poison_arena};
use testkit::wrapped_engine::WrappedEngine;
use train::Setup;

/// Bytes of the arena of one rank.
#[derive(Clone, Debug, Default)]
struct Measured {
    asked: Arc<AtomicUsize>,
    used: Arc<AtomicUsize>,
}

impl Measured {
    fn touch(&self, tensor: Tensor) {
        if !tensor.is_empty() {
            self.used.fetch_max(tensor.bytes().end, Ordering::Relaxed);
        }
    }
}

/// Arenas of the ranks of a run.
pub struct Arenas<'a> {
    setup: &'a Setup,
    ranks: Vec<Measured>,
}

impl Arenas<'_> {
    /// The arenas of `setup`.
    pub fn of(setup: &Setup) -> Arenas<'_> {
        Arenas { setup, ranks: setup.mesh.ranks().map(|_| Measured::default()).collect() }
    }

    /// Threads of this process whose arenas are poisoned before their first operation and measured while they are used.
    pub fn engine(&self) -> WrappedEngine<'_> {
        WrappedEngine::opened_by(engine(self.setup, 1), |inner, rank, size, numerics| {
            let measured = self.ranks[rank.0].clone();
            measured.asked.store(size.end_bytes(), Ordering::Relaxed);
            let rank = poison_arena(inner.open(rank, size, numerics)?, size.end_bytes())?;
            Ok(intercept(rank, measured))
        })
    }

    /// After a run: ranks whose arena is not as large as the plan says or is not used to its end, one sentence each.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (rank, measured) in self.ranks.iter().enumerate() {
            let stage = self.setup.mesh.coord(Rank(rank)).along(Axis::Pp);
            let planned = self.setup.programs.arena_size(stage).end_bytes();
            let (asked, used) = (measured.asked.load(Ordering::Relaxed), measured.used.load(Ordering::Relaxed));
            if [asked, used.next_multiple_of(ALIGN_BYTES)] != [planned; 2] {
                faults.push(format!("rank {rank} plans {planned} bytes, asks for {asked} and uses {used}"));
            }
        }
        faults
    }
}

/// Notes every tensor that the device or a group is handed.
impl Interceptor for Measured {
    fn submit(&self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let operands = op.operands();
        operands.reads().chain(operands.writes()).for_each(|tensor| self.touch(tensor));
        device.submit(stream, op)
    }

    fn upload(&self, device: &dyn Device, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.touch(to);
        device.upload(stream, to, from)
    }

    /// To poison is not to use.
    fn write(&self, device: &dyn Device, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        if !is_poison(from) {
            self.touch(to);
        }
        device.write(to, from)
    }

    fn read(&self, device: &dyn Device, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.touch(from);
        device.read(from, to)
    }

    fn call(&self, _: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
        call.operands().into_iter().flatten().for_each(|tensor| self.touch(tensor));
        call.perform(group.communicator, stream)
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
        let arenas = Arenas::of(&setup);
        let planned = setup.plan(0).arena_bytes();
        assert_eq!(arenas.faults(), [format!("rank 0 plans {planned} bytes, asks for 0 and uses 0")]);
        assert!(outcome_of(&setup, &arenas.engine(), &proof_text()).is_ok());
        assert_eq!(arenas.faults(), [""; 0]);
    }
}
