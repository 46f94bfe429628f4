//! A device that computes nothing and records what it is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Cost, Device, DeviceError, MemoryReader, Op, Stream, Tensor};

/// What was asked of a [`MetaDevice`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Calls and summed costs by operation name.
    pub operations: BTreeMap<&'static str, (u64, Cost)>,
    /// The operations themselves, in order: their shapes decide what they take on another device.
    pub submitted: Vec<Op>,
    /// First byte behind all tensors of all operations and copies: the arena that they need.
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

/// Stands for a device of any size: there is no memory behind its tensors.
#[derive(Debug, Default)]
pub struct MetaDevice {
    record: Mutex<Record>,
}

impl MetaDevice {
    /// Everything recorded since the last call.
    pub fn take_record(&self) -> Record {
        std::mem::take(&mut *self.record())
    }

    /// A panic elsewhere leaves a record that is whole.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for MetaDevice {
    fn submit(&self, _stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let cost = op.cost();
        let mut record = self.record();
        let (calls, sum) = record.operations.entry(op.name()).or_default();
        *calls += 1;
        sum.multiply_adds += cost.multiply_adds;
        sum.moved_bytes += cost.moved_bytes;
        record.submitted.push(*op);
        let operands = op.operands();
        operands.reads().chain(operands.writes()).for_each(|tensor| record.touch(tensor));
        Ok(())
    }

    fn write(&self, to: Tensor, _from: &[u8]) -> Result<(), DeviceError> {
        self.record().touch(to);
        Ok(())
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.record().touch(from);
        to.fill(0);
        Ok(())
    }
}

/// What would be read; nothing is there.
impl MemoryReader for Arc<MetaDevice> {
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        Device::read(&**self, from, to)
    }
}
