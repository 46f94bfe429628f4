//! Signals that reach a process other than 0, on their way to all.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::processes::company::Several;
use crate::run::interrupt::Interrupt;

/// How often a signal is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// Does `work`, while a thread passes a signal that reaches this process on to process 0, which ends the work of all.
pub fn relay_while<T>(several: &Several, interrupt: &Interrupt, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                if let Some(signal) = interrupt.signal() {
                    return several.control.stop(signal.number());
                }
            }
        });
        let result = work();
        drop(running);
        result
    })
}
