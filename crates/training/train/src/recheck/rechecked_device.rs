//! A device that computes some operations twice and compares their results to the bit.
//!
//! Every operation is deterministic, so two results that differ are evidence: the processor, or the memory between, was
//! wrong once. A third computation shows which one. The memory that an operation writes is restored before the second
//! computation, so operations that accumulate and those in place are compared like all others.

use std::cell::Cell;
use std::rc::Rc;

use config::Recheck;
use device::{Around, Device, DeviceError, Op, Stream, Tensor};
use mesh::Rank;

use crate::recheck::resting_memory::RestingMemory;

/// Where operations are sampled, one in this number is computed twice.
pub const SAMPLED_OPERATIONS: u64 = 256;

/// Computes some operations of a device twice.
pub(crate) struct RecheckedDevice {
    inner: Rc<dyn Device>,
    recheck: Recheck,
    /// Memory between operations, where it is checked.
    resting: Option<Rc<RestingMemory>>,
    /// State of the generator that chooses.
    drawn: Cell<u64>,
}

impl RecheckedDevice {
    /// The device of `rank` in the run with this seed.
    pub(crate) fn new(
        inner: Rc<dyn Device>,
        recheck: Recheck,
        resting: Option<Rc<RestingMemory>>,
        (rank, seed): (Rank, u64),
    ) -> RecheckedDevice {
        let drawn = Cell::new(seed ^ (rank.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        RecheckedDevice { inner, recheck, resting, drawn }
    }

    fn is_chosen(&self) -> bool {
        match self.recheck {
            Recheck::Off => false,
            Recheck::All => true,
            Recheck::Sample => {
                // SplitMix64: which operations are chosen does not follow the rhythm of layers.
                let state = self.drawn.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
                self.drawn.set(state);
                let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (mixed ^ (mixed >> 31)).is_multiple_of(SAMPLED_OPERATIONS)
            }
        }
    }

    fn compare(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        let operands = op.operands();
        let written: Vec<Tensor> = operands.writes().filter(|tensor| !tensor.is_empty()).collect();
        let before = self.contents(&written)?;
        let reads: Vec<Tensor> = operands.reads().collect();
        let enter = |resting: &Rc<RestingMemory>| resting.enter(op.name(), &reads, &written);
        // A change before this is found here, one after it makes the first two computations differ.
        let touched = self.resting.as_ref().map(enter).transpose()?;
        self.inner.submit(stream, op)?;
        let first = self.contents(&written)?;
        self.restore(&written, &before)?;
        self.inner.submit(stream, op)?;
        if let (Some(resting), Some(touched)) = (&self.resting, touched) {
            resting.leave(op.name(), touched)?;
        }
        let second = self.contents(&written)?;
        if first == second {
            return Ok(());
        }
        self.restore(&written, &before)?;
        self.inner.submit(stream, op)?;
        let third = self.contents(&written)?;
        let which = match (third == first, third == second) {
            (true, _) => "the second of three computations was wrong",
            (false, true) => "the first of three computations was wrong",
            (false, false) => "three computations have three results",
        };
        let differing = first.iter().zip(&second).filter(|(one, other)| one != other).count();
        Err(DeviceError::Corrupted {
            what: format!(
                "two computations of {} on this rank differ in {differing} of {} bytes; {which}",
                op.name(),
                first.len()
            ),
        })
    }

    fn write_guarded(&self, to: Tensor, write: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        match &self.resting {
            Some(resting) => resting.guarded("write", &[], &[to], write),
            None => write(),
        }
    }

    fn contents(&self, tensors: &[Tensor]) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; tensors.iter().map(Tensor::size_bytes).sum()];
        let mut rest = bytes.as_mut_slice();
        for row in tensors.iter().flat_map(dense) {
            let (own, after) = rest.split_at_mut(row.size_bytes());
            self.inner.read(row, own)?;
            rest = after;
        }
        Ok(bytes)
    }

    fn restore(&self, tensors: &[Tensor], bytes: &[u8]) -> Result<(), DeviceError> {
        let mut rest = bytes;
        for row in tensors.iter().flat_map(dense) {
            let (own, after) = rest.split_at(row.size_bytes());
            self.inner.write(row, own)?;
            rest = after;
        }
        Ok(())
    }
}

/// The tensor itself, or its rows where there are gaps between them.
fn dense(tensor: &Tensor) -> Vec<Tensor> {
    match tensor.is_dense() {
        true => vec![*tensor],
        false => (0..tensor.rows).map(|row| tensor.rows_of(row..row + 1)).collect(),
    }
}

impl Around for RecheckedDevice {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        if self.is_chosen() { self.compare(stream, op) } else { self.inner.submit(stream, op) }
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.write_guarded(to, || self.inner.upload(stream, to, from))
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.write_guarded(to, || self.inner.write(to, from))
    }
}
