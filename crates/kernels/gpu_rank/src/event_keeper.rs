//! Events of a rank that other ranks wait for: they exist until all ranks have ended.

use std::sync::{Arc, Mutex};

use gpu::{DriverError, EventHandle, Gpu};
use sync::lock;

/// Creates events, and destroys them with itself. Whoever opens ranks keeps it until the last of them has ended: a rank
/// that has left a meeting may end before another one waits for its event.
pub struct EventKeeper {
    gpu: Arc<dyn Gpu>,
    events: Mutex<Vec<EventHandle>>,
}

impl EventKeeper {
    /// Events of `gpu`.
    pub fn new(gpu: Arc<dyn Gpu>) -> EventKeeper {
        EventKeeper { gpu, events: Mutex::default() }
    }

    /// A new event.
    pub(crate) fn create(&self) -> Result<EventHandle, DriverError> {
        let event = self.gpu.create_event()?;
        lock(&self.events).push(event);
        Ok(event)
    }
}

impl Drop for EventKeeper {
    fn drop(&mut self) {
        for event in lock(&self.events).drain(..) {
            // All ranks have ended; nobody hears of an error.
            let _ = self.gpu.destroy_event(event);
        }
    }
}
