//! A group that moves nothing and records what one member would send.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{Call, DeviceError, Operation, Stream, SumTree, Tensor};
use mesh::AxisSet;
use sync::lock;

use crate::collectives::{CollectiveShape, Traffic, traffic};
use crate::host_map::GroupHosts;

/// One call of a collective on a recorded group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectiveCall {
    /// The axes along which the members differ.
    pub axes: AxisSet,
    /// The operation of all members.
    pub operation: Operation,
    /// Bytes of the whole argument, all slices together.
    pub bytes: usize,
}

/// Stands for one member of a group of any size; no other member exists.
///
/// It records the formulas of [`traffic`], so its counts are those of a run over a [`Counting`](crate::Counting)
/// transport.
#[derive(Debug)]
pub struct MetaCommunicator {
    axes: AxisSet,
    members: GroupHosts,
    position: usize,
    sent: Mutex<BTreeMap<Operation, Traffic>>,
    calls: Mutex<Vec<CollectiveCall>>,
    peak_bytes: AtomicUsize,
}

impl MetaCommunicator {
    /// Member `position` of a group of `size` along `axes`.
    pub fn new(axes: AxisSet, size: usize, position: usize) -> MetaCommunicator {
        MetaCommunicator {
            axes,
            members: GroupHosts::one_host(size),
            position,
            sent: Mutex::default(),
            calls: Mutex::default(),
            peak_bytes: AtomicUsize::default(),
        }
    }

    /// Traffic since the last call, by operation. Operations without traffic are left out.
    pub fn take_sent(&self) -> BTreeMap<Operation, Traffic> {
        std::mem::take(&mut *lock(&self.sent))
    }

    /// The collectives that were called since the last call of this, in order, whatever was sent for them.
    pub fn take_calls(&self) -> Vec<CollectiveCall> {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Past-the-end byte of the tensors of all calls since the last call of this: the size of the arena that they need.
    pub fn take_peak_bytes(&self) -> usize {
        self.peak_bytes.swap(0, Ordering::Relaxed)
    }

    fn touch(&self, x: Tensor) {
        self.peak_bytes.fetch_max(x.bytes().end, Ordering::Relaxed);
    }

    fn record(&self, operation: Operation, x: Tensor, tree: SumTree) {
        lock(&self.calls).push(CollectiveCall { axes: self.axes, operation, bytes: x.size_bytes() });
        let (len, width_bytes) = (x.len(), x.dtype.size_bytes());
        let shape = CollectiveShape { operation, len, width_bytes, hosts: &self.members, tree };
        let sent = traffic(&shape, self.position).total();
        if sent != Traffic::default() {
            let mut sums = lock(&self.sent);
            let sum = sums.entry(operation).or_default();
            *sum = *sum + sent;
        }
    }
}

impl device::Communicator for MetaCommunicator {
    fn size(&self) -> usize {
        self.members.members()
    }

    fn position(&self) -> usize {
        self.position
    }

    fn call(&self, _stream: Stream, call: Call) -> Result<(), DeviceError> {
        let [read, written] = call.operands();
        read.iter().chain(&written).for_each(|operand| self.touch(*operand));
        call.sent().into_iter().for_each(|sent| self.record(call.operation(), sent, call.tree()));
        Ok(())
    }
}
