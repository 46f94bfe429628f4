//! A device that computes nothing and records what it is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use sync::lock;

use crate::{Cost, Device, DeviceError, MemoryReader, Op, Stream, StreamEvent, StreamQueues, Tensor};

/// The calls of a [`MetaDevice`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Calls and summed costs by operation name.
    pub operations: BTreeMap<&'static str, (u64, Cost)>,
    /// The operations themselves, in order: their shapes decide what they take on another device. Of a fused one those
    /// that it stands for.
    pub submitted: Vec<Op>,
    /// First byte after all tensors of all operations and copies: the arena that they need.
    pub peak_bytes: usize,
}

impl Record {
    /// Sum over all operations.
    pub fn total(&self) -> Cost {
        self.operations.values().fold(Cost::default(), |sum, (_, cost)| Cost {
            multiply_adds: sum.multiply_adds + cost.multiply_adds,
            moved_bytes: sum.moved_bytes + cost.moved_bytes,
        })
    }

    fn touch(&mut self, tensor: Tensor) {
        self.peak_bytes = self.peak_bytes.max(tensor.bytes().end);
    }
}

/// Stands for a device of any size: there is no memory after its tensors.
#[derive(Debug, Default)]
pub struct MetaDevice {
    record: Mutex<Record>,
}

impl MetaDevice {
    /// Everything recorded since the last call.
    pub fn take_record(&self) -> Record {
        std::mem::take(&mut *self.recorded())
    }

    fn note(&self, op: Op) {
        let cost = op.cost();
        let mut record = self.recorded();
        let (calls, sum) = record.operations.entry(op.name()).or_default();
        *calls += 1;
        sum.multiply_adds += cost.multiply_adds;
        sum.moved_bytes += cost.moved_bytes;
        record.submitted.push(op);
        let operands = op.operands();
        operands.reads().chain(operands.writes()).for_each(|tensor| record.touch(tensor));
    }

    /// A panic elsewhere leaves a record that is whole.
    fn recorded(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }
}

impl Device for MetaDevice {
    fn submit(&self, _stream: Stream, op: &Op) -> Result<(), DeviceError> {
        op.unfused().for_each(|op| self.note(op));
        Ok(())
    }

    fn upload(&self, _stream: Stream, to: Tensor, _from: &[u8]) -> Result<(), DeviceError> {
        self.recorded().touch(to);
        Ok(())
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.upload(Stream::Compute, to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.recorded().touch(from);
        to.fill(0);
        Ok(())
    }

    /// Nothing runs, so everything has ended.
    fn record(&self, stream: Stream) -> StreamEvent {
        StreamQueues::default().record(stream)
    }

    fn reached(&self, _event: StreamEvent) -> Option<Instant> {
        None
    }

    fn wait(&self, _stream: Stream, _event: StreamEvent) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Reads nothing: a [`MetaDevice`] has no data.
impl MemoryReader for Arc<MetaDevice> {
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        Device::read(&**self, from, to)
    }
}
