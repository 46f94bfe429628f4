//! An engine that notes every tensor that its ranks touch.

use std::sync::{Arc, Mutex};

use device::{ArenaSize, Communicator, Device, DeviceError, Numerics, Op, Reduction, Stream, SumTree, Tensor};
use mesh::Rank;
use train::{Engine, EngineDescription, RankEngine};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub struct Touch {
    pub tensor: Tensor,
    pub access: Access,
}

type Touches = Arc<Mutex<Vec<Touch>>>;

/// Wraps an engine.
pub struct Watching {
    inner: Box<dyn Engine + Send>,
    touches: Vec<Touches>,
}

impl Watching {
    pub fn new(inner: impl Engine + Send + 'static, world_size: usize) -> Watching {
        Watching { inner: Box::new(inner), touches: (0..world_size).map(|_| Touches::default()).collect() }
    }

    /// The touches of `rank` since the last call, in order.
    pub fn take_touches(&self, rank: usize) -> Vec<Touch> {
        std::mem::take(&mut *self.touches[rank].lock().unwrap())
    }
}

impl Engine for Watching {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let RankEngine { device, memory, communicators } = self.inner.open(rank, size, numerics)?;
        let touches = &self.touches[rank.0];
        let watch = |group| -> Box<dyn Communicator> { Box::new(WatchedGroup { group, touches: Arc::clone(touches) }) };
        Ok(RankEngine {
            device: Box::new(WatchedDevice { device, touches: Arc::clone(touches) }),
            memory,
            communicators: communicators.wrapped(|_, group| watch(group)),
        })
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

fn note(touches: &Touches, access: Access, tensors: impl Iterator<Item = Tensor>) {
    touches.lock().unwrap().extend(tensors.map(|tensor| Touch { tensor, access }));
}

struct WatchedDevice {
    device: Box<dyn Device>,
    touches: Touches,
}

impl Device for WatchedDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let operands = op.operands();
        note(&self.touches, Access::Read, operands.reads());
        note(&self.touches, Access::Write, operands.writes());
        self.device.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        note(&self.touches, Access::Write, std::iter::once(to));
        self.device.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        note(&self.touches, Access::Write, std::iter::once(to));
        self.device.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        note(&self.touches, Access::Read, std::iter::once(from));
        self.device.read(from, to)
    }

    device::forward_order!(device);
}

struct WatchedGroup {
    group: Box<dyn Communicator>,
    touches: Touches,
}

impl WatchedGroup {
    fn note(&self, access: Access, x: Tensor) {
        note(&self.touches, access, std::iter::once(x));
    }
}

impl Communicator for WatchedGroup {
    fn size(&self) -> usize {
        self.group.size()
    }

    fn position(&self) -> usize {
        self.group.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.note(Access::Read, x);
        self.group.all_reduce(stream, x, reduction)
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.note(Access::Read, x);
        self.group.reduce_scatter(stream, x, tree)
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.note(Access::Read, x);
        self.group.all_gather(stream, x)
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.note(Access::Read, from);
        self.note(Access::Write, to);
        self.group.all_to_all(stream, from, to)
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.note(Access::Read, from);
        self.note(Access::Write, to);
        self.group.shift(stream, from, to)
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.note(Access::Read, x);
        self.group.send(stream, to, tag, x)
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.note(Access::Write, x);
        self.group.receive(stream, from, tag, x)
    }
}
