//! A device that computes nothing and records what it is asked.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::{Communicator, Cost, Device, DeviceError, Op, Reduction, Stream, Tensor};

/// What was asked of a [`MetaDevice`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Calls and summed costs by operation name.
    pub operations: BTreeMap<&'static str, (u64, Cost)>,
}

impl Record {
    /// Sum over all operations.
    pub fn total(&self) -> Cost {
        self.operations.values().fold(Cost::default(), |sum, (_, cost)| Cost {
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

/// Stands for a group of any size; records how many bytes this member would send.
///
/// The counts are those of the direct algorithms in `comm`: a test holds them equal to what the transport counts.
#[derive(Debug)]
pub struct MetaCommunicator {
    size: usize,
    position: usize,
    sent_bytes: RefCell<BTreeMap<&'static str, u64>>,
}

impl MetaCommunicator {
    /// Member `position` of a group of `size`.
    pub fn new(size: usize, position: usize) -> MetaCommunicator {
        MetaCommunicator { size, position, sent_bytes: RefCell::default() }
    }

    /// Bytes sent by collective name since the last call.
    pub fn take_sent_bytes(&self) -> BTreeMap<&'static str, u64> {
        self.sent_bytes.take()
    }

    fn add(&self, name: &'static str, bytes: usize) {
        *self.sent_bytes.borrow_mut().entry(name).or_default() += bytes as u64;
    }

    /// Bytes of a direct reduce-scatter or all-gather of `x`: each member passes every other one slice.
    fn slices_bytes(&self, x: Tensor) -> usize {
        let own = even_slice(x.len(), self.size, self.position);
        (x.len() - own) * x.dtype.size_bytes()
    }

    fn own_slice_to_all_bytes(&self, x: Tensor) -> usize {
        even_slice(x.len(), self.size, self.position) * (self.size - 1) * x.dtype.size_bytes()
    }
}

/// Length of slice `index` when `total` elements are split over `parts` as evenly as possible, longer slices first.
fn even_slice(total: usize, parts: usize, index: usize) -> usize {
    total / parts + usize::from(index < total % parts)
}

impl Communicator for MetaCommunicator {
    fn size(&self) -> usize {
        self.size
    }

    fn position(&self) -> usize {
        self.position
    }

    fn all_reduce(&self, _stream: Stream, x: Tensor, _reduction: Reduction) -> Result<(), DeviceError> {
        self.add("all_reduce", self.slices_bytes(x) + self.own_slice_to_all_bytes(x));
        Ok(())
    }

    fn reduce_scatter(&self, _stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.add("reduce_scatter", self.slices_bytes(x));
        Ok(())
    }

    fn all_gather(&self, _stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.add("all_gather", self.own_slice_to_all_bytes(x));
        Ok(())
    }

    fn send(&self, _stream: Stream, _to: usize, _tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.add("send", x.size_bytes());
        Ok(())
    }

    fn receive(&self, _stream: Stream, _from: usize, _tag: u64, _x: Tensor) -> Result<(), DeviceError> {
        Ok(())
    }
}
