//! Waiting for bytes of other processes in the thread of the rank that needs them.
//!
//! A thread of each process waits for its sockets. While a rank waits it takes that over, so that bytes wake the rank
//! and not first that thread: half of the switches between threads. Dropping a [`Polling`] gives it back.

use super::remote::{Poll, Remote};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the longest message that a rank reads from the memory of its sender while it polls.
const HELD_BYTES: usize = 1 << 20;

/// Polling, as far as a rank that waits has taken it over.
pub(crate) struct Polling<'a> {
    /// None where all ranks live in this process.
    remote: Option<&'a Arc<dyn Remote>>,
    held: Option<Box<dyn Poll + 'a>>,
}

impl<'a> Polling<'a> {
    /// Nothing is taken over before the first wait.
    pub(crate) fn new(remote: Option<&'a Arc<dyn Remote>>) -> Polling<'a> {
        Polling { remote, held: None }
    }

    /// Takes polling over, unless it is already; returns who wakes this thread then, or none if another rank polls.
    pub(super) fn take(&mut self) -> Option<Arc<dyn Remote>> {
        let remote = self.remote?;
        if self.held.is_none() {
            self.held = remote.poller();
        }
        self.held.is_some().then(|| Arc::clone(remote))
    }

    /// Waits for bytes, at most for `wait`, and handles them. Without the role it returns at once.
    pub(super) fn poll(&mut self, wait: Duration) {
        if let Some(held) = &mut self.held {
            held.poll(wait);
        }
    }

    /// Gives polling back for a receive that reads long messages from the memory of their senders: other ranks of the
    /// process would wait for that long.
    pub(crate) fn release_for(&mut self, len_bytes: usize) {
        if len_bytes > HELD_BYTES {
            self.release();
        }
    }

    /// Gives polling back.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}
