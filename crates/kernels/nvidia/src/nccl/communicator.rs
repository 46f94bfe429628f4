//! The library, opened, and a communicator of one rank.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gpu::Gpu;
use sync::lock;

use super::collectives::Collectives;
use super::functions::{Functions, RawCommunicator, RawId};
use crate::library::{LibraryError, Opened, Wanted};
use crate::search::Search;

/// The library. From 2.19 on it ends communicators that wait for each other in one group of calls.
pub(crate) const NCCL: Wanted = Wanted {
    title: "NCCL",
    files: &["libnccl.so.2"],
    needs: "2.19 or later",
    remedy: "install NCCL, or `pip install nvidia-nccl-cu13`, and give its folder",
};
const OLDEST: u32 = 21_900;

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
    pub(super) functions: Functions,
    pub(super) collectives: Collectives,
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
        let collectives = Collectives::bind(|name| opened.symbol(name.symbol))?;
        let version = functions.number().map_err(|error| opened.too_old(error.text))?;
        if version < OLDEST {
            return Err(opened.too_old(version_text(version)));
        }
        Ok(Library { functions, collectives, path: opened.path().to_path_buf(), version })
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

    /// Cancels the work of all these communicators and frees them, whatever other ranks do, those that still meet
    /// included. Calls on them fail from here on.
    ///
    /// They end in one group of calls: each alone could wait for a peer that ends another one first.
    ///
    /// # Errors
    /// A library that refuses it.
    pub fn abort<'a>(&self, communicators: impl Iterator<Item = &'a Communicator>) -> Result<(), CollectiveError> {
        // No thread is in a call on one of them meanwhile.
        let mut locked: Vec<_> = communicators.map(|communicator| lock(&communicator.raw)).collect();
        self.functions.start_group()?;
        let stopped: Vec<_> =
            locked.iter_mut().filter_map(|raw| raw.take()).map(|raw| self.functions.stop(raw)).collect();
        let ended = self.functions.end_group();
        stopped.into_iter().collect::<Result<(), _>>()?;
        ended.map(|_| ())
    }
}

fn version_text(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// One rank's end of a group. Calls on it must be made in the same order by all ranks.
pub struct Communicator {
    pub(super) library: Arc<Library>,
    /// One call at a time: the library does not lock. None once it has been aborted.
    raw: Mutex<Option<RawCommunicator>>,
}

impl Communicator {
    /// Begins to meet the other ranks that have the name. Poll until it is done.
    ///
    /// # Errors
    /// A GPU that the library cannot use.
    pub fn begin(
        library: Arc<Library>,
        gpu: &dyn Gpu,
        id: GroupId,
        ranks: usize,
        rank: usize,
    ) -> Result<Communicator, CollectiveError> {
        let entered = gpu.enter();
        entered.map_err(|error| CollectiveError { call: "ncclCommInitRankConfig", text: error.to_string() })?;
        Communicator::of_current_context(library, id, ranks, rank)
    }

    /// Returns the same as [`Communicator::begin`], for the GPU whose context is that of the calling thread.
    ///
    /// # Errors
    /// No context, or a GPU that the library cannot use.
    pub fn of_current_context(
        library: Arc<Library>,
        id: GroupId,
        ranks: usize,
        rank: usize,
    ) -> Result<Communicator, CollectiveError> {
        let raw = library.functions.begin(id.0, ranks, rank)?;
        Ok(Communicator { library, raw: Mutex::new(Some(raw)) })
    }

    /// Makes a call, unless the communicator has been aborted.
    pub(super) fn with<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(&Functions, RawCommunicator) -> Result<T, CollectiveError>,
    ) -> Result<T, CollectiveError> {
        match *lock(&self.raw) {
            Some(raw) => call(&self.library.functions, raw),
            None => Err(CollectiveError { call: name, text: "the communicator was aborted".into() }),
        }
    }

    /// Whether the last call is done.
    ///
    /// # Errors
    /// A failure in the background.
    pub fn poll(&self) -> Result<Progress, CollectiveError> {
        self.with("ncclCommGetAsyncError", |functions, raw| functions.poll(raw))
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
}

impl Drop for Communicator {
    /// Cancels the work under way: a communicator that is dropped before [`Communicator::close`] has failed.
    fn drop(&mut self) {
        let _ = self.library.abort(std::iter::once(&*self));
    }
}
