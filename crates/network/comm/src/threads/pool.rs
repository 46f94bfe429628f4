//! Buffers for copied messages, used again and again.

use crate::collectives::COPY_LIMIT_BYTES;
use std::sync::Arc;

use sync::{Mutex, lock};

/// The copies that one rank has sent. A buffer is free again when the last receiver drops it.
#[derive(Default)]
pub(super) struct Pool {
    /// Short and long messages apart, so that not every buffer grows to the longest message.
    short: Mutex<Vec<Arc<Vec<u8>>>>,
    long: Mutex<Vec<Arc<Vec<u8>>>>,
}

impl Pool {
    /// A shared copy of `bytes`. Allocates only while more messages are under way than ever before,
    /// or when a message is longer than those before.
    pub(super) fn copy(&self, bytes: &[u8]) -> Arc<Vec<u8>> {
        let (shelf, capacity) =
            if bytes.len() <= COPY_LIMIT_BYTES { (&self.short, COPY_LIMIT_BYTES) } else { (&self.long, bytes.len()) };
        let mut shelf = lock(shelf);
        for buffer in shelf.iter_mut() {
            if let Some(free) = Arc::get_mut(buffer) {
                free.clear();
                free.extend_from_slice(bytes);
                return Arc::clone(buffer);
            }
        }
        let mut new = Vec::with_capacity(capacity);
        new.extend_from_slice(bytes);
        let new = Arc::new(new);
        shelf.push(Arc::clone(&new));
        new
    }
}
