//! A device that computes nothing and records what it is asked.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::{Cost, Device, DeviceError, Op, Stream, Tensor};

/// What was asked of a [`MetaDevice`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Calls and summed costs by operation name.
    pub operations: BTreeMap<&'static str, (u64, Cost)>,
}

impl Record {
    /// Sum over all operations.
    pub fn total(&self) -> Cost {
        self.operations
            .values()
            .fold(Cost::default(), |sum, (_, cost)| Cost {
                multiply_adds: sum.multiply_adds + cost.multiply_adds,
                moved_bytes: sum.moved_bytes + cost.moved_bytes,
            })
    }
}

/// Stands for a device of any size: there is no memory behind its tensors.
#[derive(Debug, Default)]
pub struct MetaDevice {
    record: RefCell<Record>,
}

impl MetaDevice {
    /// Everything recorded since the last call.
    pub fn take_record(&self) -> Record {
        self.record.take()
    }
}

impl Device for MetaDevice {
    fn submit(&self, _stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let cost = op.cost();
        let mut record = self.record.borrow_mut();
        let (calls, sum) = record.operations.entry(op.name()).or_default();
        *calls += 1;
        sum.multiply_adds += cost.multiply_adds;
        sum.moved_bytes += cost.moved_bytes;
        Ok(())
    }

    fn write(&self, _to: Tensor, _from: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, _from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        to.fill(0);
        Ok(())
    }
}
