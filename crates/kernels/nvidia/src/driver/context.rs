//! The context of a GPU in this process.

use std::sync::Arc;

use gpu::DriverError;

use super::calls::entry::Api;
use super::functions::{Context as Raw, Device};

/// A context, released after the last thing that lives in it.
pub(super) struct Context {
    pub(super) api: Arc<Api>,
    pub(super) device: Device,
    raw: Raw,
}

impl Context {
    /// Opens the context of a GPU.
    pub(super) fn open(api: Arc<Api>, device: Device) -> Result<Context, DriverError> {
        let raw = api.retain(device)?;
        Ok(Context { api, device, raw })
    }

    /// Makes it the one of the calling thread, and returns the calls.
    pub(super) fn enter(&self) -> Result<&Api, DriverError> {
        self.api.set_current(self.raw)?;
        Ok(&self.api)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A driver that cannot release it has lost the GPU.
        let _ = self.api.release(self.device);
    }
}
