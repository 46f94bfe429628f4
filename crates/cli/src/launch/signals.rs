//! Signals that reach the launcher, in their order.

use std::sync::Mutex;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use sync::lock;

use crate::failure::Failure;
use crate::launch::supervisor::Order;

/// The signals that all processes of a launch receive.
pub struct Signals(Mutex<signal_hook::iterator::Signals>);

impl Signals {
    /// Begins to listen. From now on these signals do not end this process.
    ///
    /// # Errors
    /// A system that does not let this process handle the signals.
    pub fn listen() -> Result<Signals, Failure> {
        let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGUSR1]);
        let signals = signals.map_err(|error| Failure::Work(format!("signals cannot be handled: {error}")))?;
        Ok(Signals(Mutex::new(signals)))
    }

    /// The next signal that has come.
    pub fn next(&self) -> Option<Order> {
        lock(&self.0).pending().next().map(Order::Signal)
    }
}
