//! An engine of which one rank's device misbehaves.

use std::cell::Cell;
use std::time::Duration;

use device::{ArenaSize, Device, DeviceError, Numerics, Op, Stream, Tensor};
use mesh::Rank;
use train::{Engine, EngineDescription, RankEngine, ThreadEngine};

/// The fault in place of an operation.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Panics,
    Fails,
    Sleeps(Duration),
}

/// Wraps an engine: operation number `nth` (from 0) of `rank` is preceded by a fault.
pub struct FaultyEngine {
    pub inner: ThreadEngine,
    pub rank: Rank,
    pub nth: u64,
    pub fault: Fault,
}

impl Engine for FaultyEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let engine = self.inner.open(rank, size, numerics)?;
        if rank != self.rank {
            return Ok(engine);
        }
        let device = FaultyDevice { inner: engine.device, left: Cell::new(self.nth), fault: self.fault };
        Ok(RankEngine { device: Box::new(device), ..engine })
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

struct FaultyDevice {
    inner: Box<dyn Device>,
    /// Operations until the fault.
    left: Cell<u64>,
    fault: Fault,
}

impl Device for FaultyDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        match self.fault {
            Fault::Panics if left == 0 => panic!("a kernel has gone wrong in {}", op.name()),
            Fault::Fails if left == 0 => {
                return Err(DeviceError::Shape { op: op.name(), what: "a shape that no kernel takes".into() });
            }
            Fault::Sleeps(time) if left == 0 => std::thread::sleep(time),
            Fault::Panics | Fault::Fails | Fault::Sleeps(_) => {}
        }
        self.inner.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
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
