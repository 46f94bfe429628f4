//! The library, opened, and a communicator of one rank.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gpu::{DevicePointer, Gpu, StreamHandle};
use sync::lock;

use super::calls::Buffers;
use super::functions::{Functions, RawCommunicator, RawId, RawWindow};
use crate::library::{LibraryError, Opened, Wanted};
use crate::search::Search;

/// The library. From 2.28.7 on it can cancel collectives and keep the communicator.
pub(crate) const NCCL: Wanted = Wanted {
    title: "NCCL",
    files: &["libnccl.so.2"],
    needs: "2.28.7 or later",
    remedy: "install NCCL, or `pip install nvidia-nccl-cu13`, and give its folder",
};
const OLDEST: u32 = 22_807;

/// A call that failed, of this rank or in the background.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub struct CollectiveError {
    /// The function.
    pub call: &'static str,
    /// The library's texts for the reason.
    pub text: String,
}

/// Whether a call is done. None waits for other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is.
    Done,
    /// It continues in the background; ask [`Communicator::poll`].
    Continues,
}

/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// Bytes, which are moved and not added.
    Bytes,
    /// 64-bit integers, whose sums do not depend on an order.
    I64,
    /// fp32.
    F32,
    Bf16,
}

/// Names a group of ranks that meet: made by one of them, and given to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(RawId);

impl GroupId {
    /// The identifier, as it is sent to the other ranks.
    pub fn bytes(&self) -> [u8; 128] {
        self.0.internal.map(|byte| byte.to_ne_bytes()[0])
    }

    /// The name that has these bytes.
    pub fn of_bytes(bytes: [u8; 128]) -> GroupId {
        GroupId(RawId { internal: bytes.map(|byte| std::ffi::c_char::from_ne_bytes([byte])) })
    }
}

/// NCCL in this process.
pub struct Library {
    functions: Functions,
    path: PathBuf,
    version: u32,
}

impl Library {
    /// Finds and opens NCCL.
    ///
    /// # Errors
    /// A library that is missing, too old, or without a function of the table.
    pub fn open(search: &Search) -> Result<Library, LibraryError> {
        let opened = Opened::find(NCCL, search)?;
        let functions = Functions::bind(|name| opened.symbol(name.symbol))?;
        let version = functions.number().map_err(|error| opened.too_old(error.text))?;
        if version < OLDEST {
            return Err(opened.too_old(version_text(version)));
        }
        Ok(Library { functions, path: opened.path().to_path_buf(), version })
    }

    /// Its file, or its name where the loader has found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version: `2.28.7`.
    pub fn version(&self) -> String {
        version_text(self.version)
    }

    /// A new name for a group. The process that makes it must live until the group has met.
    ///
    /// # Errors
    /// No network interface to meet at.
    pub fn group_id(&self) -> Result<GroupId, CollectiveError> {
        self.functions.new_id().map(GroupId)
    }

    /// Submits the calls that `calls` makes on this thread together.
    ///
    /// # Errors
    /// The error of a call, or of their submission.
    pub fn together(&self, calls: impl FnOnce() -> Result<(), CollectiveError>) -> Result<Progress, CollectiveError> {
        self.functions.start_group()?;
        let made = calls();
        let ended = self.functions.end_group();
        made?;
        ended
    }
}

fn version_text(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// One rank's end of a group. Calls on it must be made in the same order by all ranks.
pub struct Communicator {
    library: Arc<Library>,
    /// One call at a time: the library does not lock. None once it has been aborted.
    raw: Mutex<Option<RawCommunicator>>,
}

/// Memory that all ranks of a communicator have registered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(RawWindow);

impl Communicator {
    /// Begins to meet the other ranks, by one name or, for very many ranks, several. Poll until it is done.
    ///
    /// # Errors
    /// A GPU that the library cannot use.
    pub fn begin(
        library: Arc<Library>,
        gpu: &dyn Gpu,
        ids: &[GroupId],
        ranks: usize,
        rank: usize,
    ) -> Result<Communicator, CollectiveError> {
        let entered = gpu.enter();
        entered.map_err(|error| CollectiveError { call: "ncclCommInitRankConfig", text: error.to_string() })?;
        Communicator::of_current_context(library, ids, ranks, rank)
    }

    /// Returns the same as [`Communicator::begin`], for the GPU whose context is that of the calling thread.
    ///
    /// # Errors
    /// No context, or a GPU that the library cannot use.
    pub fn of_current_context(
        library: Arc<Library>,
        ids: &[GroupId],
        ranks: usize,
        rank: usize,
    ) -> Result<Communicator, CollectiveError> {
        let mut ids: Vec<RawId> = ids.iter().map(|id| id.0).collect();
        let raw = library.functions.begin(&mut ids, ranks, rank)?;
        Ok(Communicator { library, raw: Mutex::new(Some(raw)) })
    }

    /// Makes a call, unless the communicator has been aborted.
    fn with<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(&Functions, RawCommunicator) -> Result<T, CollectiveError>,
    ) -> Result<T, CollectiveError> {
        match *lock(&self.raw) {
            Some(raw) => call(&self.library.functions, raw),
            None => Err(CollectiveError { call: name, text: "the communicator was aborted".into() }),
        }
    }

    /// Cancels the work under way and frees the communicator, whatever the other ranks do. Calls fail from here on.
    ///
    /// # Errors
    /// A library that refuses it.
    pub fn abort(&self) -> Result<(), CollectiveError> {
        match lock(&self.raw).take() {
            Some(raw) => self.library.functions.stop(raw),
            None => Ok(()),
        }
    }

    /// Whether the last call is done.
    ///
    /// # Errors
    /// A failure in the background.
    pub fn poll(&self) -> Result<Progress, CollectiveError> {
        self.with("ncclCommGetAsyncError", |functions, raw| functions.poll(raw))
    }

    /// Cancels the work under way on this rank; its peers must cancel theirs. Afterwards only [`Communicator::without`]
    /// and the end.
    ///
    /// # Errors
    /// A communicator that cannot be cancelled.
    pub fn revoke(&self) -> Result<Progress, CollectiveError> {
        self.with("ncclCommRevoke", |functions, raw| functions.cancel(raw))
    }

    /// Begins a communicator without `excluded` ranks.
    ///
    /// # Errors
    /// A library that refuses it.
    pub fn without(&self, excluded: &[usize]) -> Result<Communicator, CollectiveError> {
        let raw = self.with("ncclCommShrink", |functions, raw| functions.begin_without(raw, excluded))?;
        Ok(Communicator { library: self.library.clone(), raw: Mutex::new(Some(raw)) })
    }

    /// Begins to end in order, together with all ranks. Poll until it is done, then drop it.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn finish(&self) -> Result<Progress, CollectiveError> {
        self.with("ncclCommFinalize", |functions, raw| functions.finish(raw))
    }

    /// Frees a communicator that is finished.
    ///
    /// # Errors
    /// A communicator that is not finished.
    pub fn close(self) -> Result<(), CollectiveError> {
        self.with("ncclCommDestroy", |functions, raw| functions.free(raw))?;
        // Dropped without an abort.
        *lock(&self.raw) = None;
        Ok(())
    }

    /// Allocates memory of the current GPU that windows may be of.
    ///
    /// # Errors
    /// No memory.
    pub fn allocate(&self, bytes: usize) -> Result<DevicePointer, CollectiveError> {
        self.library.functions.allocate_memory(bytes)
    }

    /// Frees memory of [`Communicator::allocate`]. Work and windows that use it must have ended.
    ///
    /// # Errors
    /// Memory that was not allocated here.
    pub fn free(&self, memory: DevicePointer) -> Result<(), CollectiveError> {
        self.library.functions.free_memory(memory)
    }

    /// Registers memory, together with all ranks.
    ///
    /// # Errors
    /// Memory that is not mapped by ranges.
    pub fn register(&self, memory: DevicePointer, bytes: usize) -> Result<Window, CollectiveError> {
        self.with("ncclCommWindowRegister", |functions, raw| functions.open_window(raw, memory, bytes)).map(Window)
    }

    /// Ends a window.
    ///
    /// # Errors
    /// A window of another communicator.
    pub fn deregister(&self, window: Window) -> Result<(), CollectiveError> {
        self.with("ncclCommWindowDeregister", |functions, raw| functions.close_window(raw, window.0))
    }

    /// `to[count]` of every rank becomes the sum of all `from[count]`, in an order of the library's choice.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn all_reduce(
        &self,
        (from, to): (DevicePointer, DevicePointer),
        (count, element): (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclAllReduce", |functions, raw| {
            functions.sum_to_all(raw, Buffers { from, to, count, element }, stream)
        })
    }

    /// `to[count]` becomes this rank's piece of the sum of all `from[ranks, count]`.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn reduce_scatter(
        &self,
        (from, to): (DevicePointer, DevicePointer),
        (count, element): (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclReduceScatter", |functions, raw| {
            functions.sum_to_shards(raw, Buffers { from, to, count, element }, stream)
        })
    }

    /// `to[ranks, count]` becomes all ranks' `from[count]`.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn all_gather(
        &self,
        (from, to): (DevicePointer, DevicePointer),
        (count, element): (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclAllGather", |functions, raw| functions.gather(raw, Buffers { from, to, count, element }, stream))
    }

    /// `to[r]` becomes rank r's `from[own rank]`, each of `count` elements.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn all_to_all(
        &self,
        (from, to): (DevicePointer, DevicePointer),
        (count, element): (usize, Element),
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclAlltoAll", |functions, raw| {
            functions.exchange(raw, Buffers { from, to, count, element }, stream)
        })
    }

    /// `to[count]` of every rank becomes `from[count]` of rank `root`.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn broadcast(
        &self,
        (from, to): (DevicePointer, DevicePointer),
        (count, element): (usize, Element),
        root: usize,
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclBroadcast", |functions, raw| {
            functions.spread(raw, Buffers { from, to, count, element }, root, stream)
        })
    }

    /// Sends `count` elements to `peer`, which receives them.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn send(
        &self,
        from: DevicePointer,
        (count, element): (usize, Element),
        peer: usize,
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclSend", |functions, raw| functions.send_to(raw, (from, count, element), peer, stream))
    }

    /// Receives `count` elements from `peer`, which sends them.
    ///
    /// # Errors
    /// An earlier failure of this communicator.
    pub fn receive(
        &self,
        to: DevicePointer,
        (count, element): (usize, Element),
        peer: usize,
        stream: StreamHandle,
    ) -> Result<Progress, CollectiveError> {
        self.with("ncclRecv", |functions, raw| functions.receive_from(raw, (to, count, element), peer, stream))
    }
}

impl Drop for Communicator {
    /// Cancels the work under way: a communicator that is dropped before [`Communicator::close`] has failed.
    fn drop(&mut self) {
        let _ = self.abort();
    }
}
