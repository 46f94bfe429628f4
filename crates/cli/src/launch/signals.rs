//! Signals that reach the launcher, in their order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use sync::lock;

use crate::failure::Failure;
use crate::launch::supervisor::Order;

/// Time after which the signal that stopped one process goes to those that have not heard of it.
const HEARING: Duration = Duration::from_millis(2500);
/// The signals that all processes of a launch receive.
pub struct Signals {
    pending: Mutex<signal_hook::iterator::Signals>,
    /// The last one that was taken, or 0.
    last: AtomicI32,
}

impl Signals {
    /// Begins to listen. From now on these signals do not end this process.
    ///
    /// # Errors
    /// A system that does not let this process handle the signals.
    pub fn listen() -> Result<Signals, Failure> {
        let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGUSR1]);
        let signals = signals.map_err(|error| Failure::Work(format!("signals cannot be handled: {error}")))?;
        Ok(Signals { pending: Mutex::new(signals), last: AtomicI32::new(0) })
    }

    /// The next signal that has come.
    pub fn next(&self) -> Option<Order> {
        let signal = lock(&self.pending).pending().next()?;
        self.last.store(signal, Ordering::Relaxed);
        Some(Order::Signal(signal))
    }

    /// The last signal that has come, whether it was passed on or not: after one nothing is started again.
    pub fn last(&self) -> Option<i32> {
        while self.next().is_some() {}
        Some(self.last.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

/// How soon processes must end after a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// After the step, with a checkpoint.
    AfterSaving,
    /// At once: a second Ctrl-C.
    Now,
}

/// The signals that processes have received, from this one or by themselves.
#[derive(Debug, Default)]
pub struct Signalled {
    /// SIGINT and SIGTERM that went to all.
    passed: usize,
    /// A signal that one process received by itself, and when it ended.
    by_itself: Option<(i32, Instant)>,
}

impl Signalled {
    /// Notes a signal that goes to all.
    pub fn note(&mut self, signal: i32) -> Urgency {
        self.by_itself = None;
        self.passed += usize::from(signal != SIGUSR1);
        if signal != SIGUSR1 && self.passed > 1 { Urgency::Now } else { Urgency::AfterSaving }
    }

    /// Notes that a process was stopped by `signal`.
    pub fn note_stopped(&mut self, signal: i32) {
        if self.passed == 0 {
            self.by_itself = Some((signal, Instant::now()));
        }
    }

    /// A signal that stopped one process before it met the others, which still wait for it.
    pub fn late_to_others(&mut self, now: Instant) -> Option<i32> {
        let (signal, _) = self.by_itself.filter(|(_, since)| now.duration_since(*since) > HEARING)?;
        self.note(signal);
        Some(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_ctrl_c_is_urgent_and_a_warning_is_not() {
        let mut signals = Signalled::default();
        let urgencies = [SIGUSR1, SIGINT, SIGUSR1, SIGTERM].map(|signal| signals.note(signal));
        let expected = [Urgency::AfterSaving, Urgency::AfterSaving, Urgency::AfterSaving, Urgency::Now];
        assert_eq!(urgencies, expected);
    }

    #[test]
    fn a_signal_of_one_process_goes_to_the_others_once_and_late() {
        let mut signals = Signalled::default();
        signals.note_stopped(SIGINT);
        let late = Instant::now() + 2 * HEARING;
        assert_eq!(signals.late_to_others(Instant::now()), None, "they may end by themselves");
        assert_eq!((signals.late_to_others(late), signals.late_to_others(late)), (Some(SIGINT), None));
        let mut all = Signalled::default();
        all.note(SIGTERM);
        all.note_stopped(SIGTERM);
        assert_eq!(all.late_to_others(late), None, "all have received it");
    }
}
