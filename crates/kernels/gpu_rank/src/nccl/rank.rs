//! Parts that all groups of a rank share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use comm::{Timeouts, Transport};
use device::{DeviceError, Stream};
use gpu::{DevicePointer, DriverError, Gpu, StreamHandle};
use mesh::Rank;
use nvidia::nccl::{CollectiveError, Communicator, GroupId, Library, Progress};
use sync::lock;

use super::watch::{CallName, Watch};
use crate::peer_kernels::PeerKernels;
use crate::rank_streams::RankStreams;

/// Terms of a sum that are on a GPU at the same time, for each stream that sums.
pub(super) const SCRATCH_BYTES: usize = 32 << 20;

/// Memory of a GPU that NCCL and its sums take: [`SCRATCH_BYTES`] for three streams, and an estimate for the library's
/// own buffers.
pub const NCCL_RANK_BYTES: u64 = 3 * SCRATCH_BYTES as u64 + (400 << 20);

/// The number of a lane of the transport, and the members of a group on it.
type Place = (usize, Vec<Rank>);

/// NCCL on the GPU of a rank.
pub struct NcclRank {
    /// Ends its communicators before the streams that they use.
    pub(super) watch: Watch,
    library: Arc<Library>,
    pub(super) streams: RankStreams,
    pub(super) kernels: Arc<PeerKernels>,
    /// Groups of the same ranks share a communicator on a lane, where all of them make the same calls in the same
    /// order.
    communicators: Mutex<BTreeMap<Place, Arc<Communicator>>>,
    scratch: Mutex<BTreeMap<u64, DevicePointer>>,
    /// Of messages before their turn.
    early: Mutex<Vec<DevicePointer>>,
}

impl NcclRank {
    /// `library` on the GPU of `streams`. `transport` is an end of the rank, which learns of failures and reports them.
    ///
    /// # Errors
    /// A thread that the system does not start.
    pub fn open(
        library: Arc<Library>,
        streams: RankStreams,
        kernels: Arc<PeerKernels>,
        (transport, timeouts): (Arc<dyn Transport>, Timeouts),
    ) -> Result<NcclRank, DeviceError> {
        let watch = Watch::start(Arc::clone(&library), Arc::clone(streams.device.gpu()), transport, timeouts)?;
        let (communicators, scratch, early) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(NcclRank { library, streams, kernels, watch, communicators, scratch, early })
    }

    /// Refuses to continue after a failure of NCCL, or of the world while NCCL had work: results of streams are not
    /// what they seem then.
    ///
    /// # Errors
    /// The failure.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.watch.check()
    }

    pub(super) fn gpu(&self) -> &dyn Gpu {
        &**self.streams.device.gpu()
    }

    pub(super) fn new_id(&self) -> Result<GroupId, CollectiveError> {
        self.library.group_id()
    }

    /// Meets the other ranks that have `id`.
    pub(super) fn meet(
        &self,
        id: GroupId,
        (ranks, rank): (usize, usize),
        name: &CallName,
    ) -> Result<Arc<Communicator>, DeviceError> {
        let begun = Communicator::begin(Arc::clone(&self.library), self.gpu(), &[id], ranks, rank);
        let communicator = Arc::new(begun.map_err(|cause| self.watch.failed(name, cause))?);
        self.watch.keep(&communicator);
        self.watch.settle(&communicator, name)?;
        Ok(communicator)
    }

    /// The communicator of these ranks on a lane, or the one that `open` makes.
    pub(super) fn communicator(
        &self,
        place: Place,
        open: impl FnOnce() -> Result<Arc<Communicator>, DeviceError>,
    ) -> Result<Arc<Communicator>, DeviceError> {
        if let Some(known) = lock(&self.communicators).get(&place) {
            return Ok(Arc::clone(known));
        }
        // Without the lock: another lane may wait for other ranks meanwhile.
        let opened = open()?;
        lock(&self.communicators).insert(place, Arc::clone(&opened));
        Ok(opened)
    }

    /// Submits the calls that `calls` makes on this thread together.
    pub(super) fn together(
        &self,
        calls: impl FnOnce() -> Result<(), CollectiveError>,
    ) -> Result<Progress, CollectiveError> {
        self.library.together(calls)
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

impl Drop for NcclRank {
    fn drop(&mut self) {
        // Streams may still have work of a rank that has failed; nobody hears of an error.
        let gpu = Arc::clone(self.streams.device.gpu());
        for stream in Stream::ALL {
            let _ = gpu.synchronize(self.streams.device.stream(stream));
        }
        lock(&self.communicators).clear();
        let scratch = std::mem::take(&mut *lock(&self.scratch)).into_values();
        for memory in scratch.chain(lock(&self.early).drain(..)) {
            let _ = gpu.free(memory);
        }
    }
}
