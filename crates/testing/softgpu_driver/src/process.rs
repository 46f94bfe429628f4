//! The state of this process's driver. The C interface has no handle to pass it by.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use gpu::{GraphHandle, StreamHandle};
use softgpu::{Settings, SoftGpu};

use crate::described::Described;
use crate::host_copies::HostCopies;
use crate::status::{INVALID_CONTEXT, Status};

/// The state of the driver.
pub struct Process {
    pub gpu: Arc<SoftGpu>,
    /// Copies between the GPU and plain memory of the host that have not ended.
    pub copies: Mutex<HostCopies>,
    /// Physical memory: bytes by handle.
    pub physical: Mutex<HashMap<u64, usize>>,
    /// Mapped ranges that nobody may use yet: bytes by address.
    pub mapped: Mutex<HashMap<u64, usize>>,
    /// Sizes of pinned memory by address.
    pub pinned: Mutex<HashMap<usize, usize>>,
    /// Graphs, with the number of things that use each.
    pub graphs: Mutex<HashMap<GraphHandle, u32>>,
    /// Graphs that are described and not launched themselves.
    pub described: Mutex<Described>,
    /// Streams whose work is being captured.
    pub captured: Mutex<Vec<StreamHandle>>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    static HAS_CONTEXT: Cell<bool> = const { Cell::new(false) };
}

/// The settings of the GPU.
pub fn settings() -> Settings {
    Settings::default()
}

/// The state of the driver.
pub fn process() -> &'static Process {
    PROCESS.get_or_init(|| Process {
        gpu: Arc::new(SoftGpu::new(0, settings())),
        copies: Mutex::default(),
        physical: Mutex::default(),
        mapped: Mutex::default(),
        pinned: Mutex::default(),
        graphs: Mutex::default(),
        described: Mutex::default(),
        captured: Mutex::default(),
    })
}

/// Sets whether this thread has the context.
pub fn set_context(has_context: bool) {
    HAS_CONTEXT.with(|context| context.set(has_context));
}

/// The state of the driver, on a thread that has the context.
///
/// # Errors
/// A thread without it.
pub fn entered() -> Result<&'static Process, Status> {
    if HAS_CONTEXT.with(Cell::get) { Ok(process()) } else { Err(INVALID_CONTEXT) }
}
