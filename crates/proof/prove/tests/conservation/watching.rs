//! An engine that notes every tensor that its ranks touch.

use std::sync::{Arc, Mutex};

use device::{Device, DeviceError, Op, Stream, Tensor};
use testkit::intercepted::{Call, Group, Interceptor, intercept};
use testkit::wrapped_engine::WrappedEngine;
use train::Engine;

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

/// The touches of one rank.
#[derive(Clone, Default)]
struct Touches(Arc<Mutex<Vec<Touch>>>);

/// The touches of the ranks of an engine.
pub struct Watching(Vec<Touches>);

impl Watching {
    pub fn new(world_size: usize) -> Watching {
        Watching((0..world_size).map(|_| Touches::default()).collect())
    }

    /// The ranks of `inner`, watched.
    pub fn engine(&self, inner: impl Engine + 'static) -> WrappedEngine<'_> {
        WrappedEngine::opened_by(Box::new(inner), |inner, rank, size, numerics| {
            Ok(intercept(inner.open(rank, size, numerics)?, self.0[rank.0].clone()))
        })
    }

    /// The touches of `rank` since the last call, in order.
    pub fn take_touches(&self, rank: usize) -> Vec<Touch> {
        std::mem::take(&mut *self.0[rank].0.lock().unwrap())
    }
}

impl Touches {
    fn note(&self, access: Access, tensors: impl IntoIterator<Item = Tensor>) {
        self.0.lock().unwrap().extend(tensors.into_iter().map(|tensor| Touch { tensor, access }));
    }
}

impl Interceptor for Touches {
    fn submit(&self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let operands = op.operands();
        self.note(Access::Read, operands.reads());
        self.note(Access::Write, operands.writes());
        device.submit(stream, op)
    }

    fn upload(&self, device: &dyn Device, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.note(Access::Write, [to]);
        device.upload(stream, to, from)
    }

    fn write(&self, device: &dyn Device, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.note(Access::Write, [to]);
        device.write(to, from)
    }

    fn read(&self, device: &dyn Device, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.note(Access::Read, [from]);
        device.read(from, to)
    }

    fn call(&self, _: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let [read, written] = call.operands();
        self.note(Access::Read, read);
        // A tensor that is reduced or gathered in place counts as read.
        self.note(Access::Write, written.filter(|written| read != Some(*written)));
        group.communicator.call(stream, call)
    }
}
