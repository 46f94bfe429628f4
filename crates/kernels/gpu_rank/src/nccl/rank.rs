//! Parts that all groups of a rank share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use device::{DeviceError, Stream};
use gpu::{DevicePointer, DriverError, Gpu, StreamHandle};
use mesh::{Group, Rank};
use nvidia::nccl::Communicator;
use sync::lock;

use super::error::{NcclError, named};
use super::meeting::{Direction, NcclGroups};
use super::watch::Watch;
use crate::peer_kernels::PeerKernels;
use crate::rank_streams::RankStreams;

/// Terms of a sum that are on a GPU at the same time, for each stream that sums.
pub(super) const SCRATCH_BYTES: usize = 32 << 20;

/// Memory of a GPU that NCCL and its sums take: [`SCRATCH_BYTES`] for three streams, and an estimate for the library's
/// own buffers.
pub const NCCL_RANK_BYTES: u64 = 3 * SCRATCH_BYTES as u64 + (400 << 20);

/// NCCL on the GPU of a rank.
///
/// All calls come from one thread, in the order of the rank's program, each after the last one has been launched: NCCL
/// does not allow launches of two threads on one GPU, and the program's order is one in which no rank waits for ever.
pub struct NcclRank {
    /// The groups, whose communicators end before the streams that they use.
    groups: NcclGroups,
    pub(super) streams: RankStreams,
    pub(super) kernels: Arc<PeerKernels>,
    scratch: Mutex<BTreeMap<u64, DevicePointer>>,
    /// Of messages before their turn.
    early: Mutex<Vec<DevicePointer>>,
}

impl NcclRank {
    /// NCCL on the GPU of `streams`, whose rank has met the others in `groups`.
    pub fn new(groups: NcclGroups, streams: RankStreams, kernels: Arc<PeerKernels>) -> NcclRank {
        NcclRank { groups, streams, kernels, scratch: Mutex::default(), early: Mutex::default() }
    }

    /// Refuses to continue after a failure of NCCL, or of the world while NCCL had work: results of streams are not
    /// what they seem then.
    ///
    /// # Errors
    /// The failure.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.watch().check()
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.groups.watch
    }

    pub(super) fn gpu(&self) -> &dyn Gpu {
        &**self.streams.device.gpu()
    }

    /// The communicator of all members of a group.
    pub(super) fn joined(&self, group: &Group) -> Result<&Arc<Communicator>, DeviceError> {
        self.groups.joined.get(group.members()).ok_or_else(|| not_met(group.rank(), named(group)))
    }

    /// The communicator of messages in a direction.
    pub(super) fn messages(&self, own: Rank, (from, to): Direction) -> Result<&Arc<Communicator>, DeviceError> {
        let other = if own == from { to } else { from };
        self.groups.messages.get(&(from, to)).ok_or_else(|| not_met(own, format!("{other} for messages")))
    }

    /// Memory for a message before its turn, as long as the rank.
    pub(super) fn early_memory(&self, bytes: usize) -> Result<DevicePointer, DriverError> {
        let memory = self.gpu().allocate(bytes)?;
        lock(&self.early).push(memory);
        Ok(memory)
    }

    /// Memory for the terms of sums of a stream.
    pub(super) fn scratch(&self, stream: StreamHandle) -> Result<DevicePointer, DriverError> {
        let mut scratch = lock(&self.scratch);
        if let Some(known) = scratch.get(&stream.0) {
            return Ok(*known);
        }
        let memory = self.gpu().allocate(SCRATCH_BYTES)?;
        scratch.insert(stream.0, memory);
        Ok(memory)
    }
}

fn not_met(rank: Rank, peers: String) -> DeviceError {
    DeviceError::Communication(Box::new(NcclError::NotMet { rank, peers }))
}

impl Drop for NcclRank {
    fn drop(&mut self) {
        // Streams may still have work of a rank that has failed; nobody hears of an error.
        let gpu = Arc::clone(self.streams.device.gpu());
        for stream in Stream::ALL {
            let _ = gpu.synchronize(self.streams.device.stream(stream));
        }
        self.groups.joined.clear();
        self.groups.messages.clear();
        let scratch = std::mem::take(&mut *lock(&self.scratch)).into_values();
        for memory in scratch.chain(lock(&self.early).drain(..)) {
            let _ = gpu.free(memory);
        }
    }
}
