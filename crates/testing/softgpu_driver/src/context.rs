//! The GPUs of this process's driver. The C interface has no handle to pass them by.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use gpu::{GraphHandle, StreamHandle};
use softgpu::{SharedCode, SoftGpu};

use crate::described::Described;
use crate::host_copies::HostCopies;
use crate::memory::Properties;
use crate::settings::settings;
use crate::status::{INVALID_CONTEXT, Status};

/// A GPU with all that lives in its context.
pub struct Context {
    pub ordinal: usize,
    pub gpu: Arc<SoftGpu>,
    /// Copies between the GPU and plain memory of the host that have not ended.
    pub copies: Mutex<HostCopies>,
    /// Physical memory: bytes and properties by handle.
    pub physical: Mutex<HashMap<u64, (usize, Properties)>>,
    /// The properties of mapped memory by address.
    pub properties: Mutex<HashMap<u64, Properties>>,
    /// Mapped ranges that nobody may use yet: bytes by address.
    pub mapped: Mutex<HashMap<u64, usize>>,
    /// Ranges whose first use will be to zero them, which they are: bytes by address.
    pub zeros: Mutex<HashMap<u64, usize>>,
    /// Sizes of pinned memory by address.
    pub pinned: Mutex<HashMap<usize, usize>>,
    /// Graphs, with the number of things that use each.
    pub graphs: Mutex<HashMap<GraphHandle, u32>>,
    /// Graphs that are described and not launched themselves.
    pub described: Mutex<Described>,
    /// Priorities of streams, by handle.
    pub priorities: Mutex<HashMap<u64, i32>>,
    /// Streams whose work is being captured.
    pub captured: Mutex<Vec<StreamHandle>>,
}

static CONTEXTS: LazyLock<Vec<OnceLock<Context>>> =
    LazyLock::new(|| settings().iter().flat_map(|settings| (0..settings.gpus).map(|_| OnceLock::new())).collect());

/// Kernels that all GPUs decode once.
static CODE: LazyLock<SharedCode> = LazyLock::new(SharedCode::default);

thread_local! {
    /// The context of the thread.
    static CURRENT: Cell<Option<&'static Context>> = const { Cell::new(None) };
}

/// How many GPUs there are.
pub fn count() -> usize {
    CONTEXTS.len()
}

/// The context of a GPU, opened by the first call.
pub fn context(ordinal: usize) -> Option<&'static Context> {
    let (place, settings) = (CONTEXTS.get(ordinal)?, settings().as_ref().ok()?);
    Some(place.get_or_init(|| Context {
        ordinal,
        gpu: Arc::new(SoftGpu::with_code(ordinal, settings.gpu.clone(), CODE.clone())),
        copies: Mutex::default(),
        physical: Mutex::default(),
        properties: Mutex::default(),
        mapped: Mutex::default(),
        zeros: Mutex::default(),
        pinned: Mutex::default(),
        graphs: Mutex::default(),
        described: Mutex::default(),
        priorities: Mutex::default(),
        captured: Mutex::default(),
    }))
}

/// Sets the context of this thread.
pub fn set_current(context: Option<&'static Context>) {
    CURRENT.with(|current| current.set(context));
}

/// The context of this thread.
///
/// # Errors
/// A thread without one.
pub fn entered() -> Result<&'static Context, Status> {
    CURRENT.with(Cell::get).ok_or(INVALID_CONTEXT)
}
