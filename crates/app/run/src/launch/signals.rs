//! Signals that reach the launcher, in their order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use sync::lock;

use crate::failure::Failure;
use crate::launch::supervisor::Order;
use crate::signal::SAME_REQUEST;

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
    /// As before: this signal repeats the first one within [`SAME_REQUEST`].
    Same,
    /// After the step, with a checkpoint.
    AfterSaving,
    /// At once: a second Ctrl-C.
    Now,
}

/// The signals that processes have received, from this one or by themselves.
#[derive(Debug, Default)]
pub struct Signalled {
    /// When the first SIGINT or SIGTERM went to all.
    passed: Option<Instant>,
    /// A signal that one process received by itself, and when it ended.
    by_itself: Option<(i32, Instant)>,
}

impl Signalled {
    /// Notes a signal that came `now`, and goes to all unless it repeats another.
    pub fn note(&mut self, signal: i32, now: Instant) -> Urgency {
        self.by_itself = None;
        if signal == SIGUSR1 {
            return Urgency::AfterSaving;
        }
        match self.passed {
            None => {
                self.passed = Some(now);
                Urgency::AfterSaving
            }
            Some(first) if now.duration_since(first) < SAME_REQUEST => Urgency::Same,
            Some(_) => Urgency::Now,
        }
    }

    /// Notes that a process was stopped by `signal`.
    pub fn note_stopped(&mut self, signal: i32) {
        if self.passed.is_none() {
            self.by_itself = Some((signal, Instant::now()));
        }
    }

    /// A signal that stopped one process before it met the others, which still wait for it.
    pub fn late_to_others(&mut self, now: Instant) -> Option<i32> {
        let (signal, _) = self.by_itself.filter(|(_, since)| now.duration_since(*since) > HEARING)?;
        self.note(signal, now);
        Some(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_ctrl_c_is_urgent_and_a_warning_is_not() {
        let (mut signals, began) = (Signalled::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        let all = [(SIGUSR1, 0), (SIGINT, 100), (SIGUSR1, 200), (SIGTERM, 1100)];
        let expected = [Urgency::AfterSaving, Urgency::AfterSaving, Urgency::AfterSaving, Urgency::Now];
        assert_eq!(all.map(|(signal, millis)| signals.note(signal, at(millis))), expected);
    }

    #[test]
    fn signals_within_a_second_are_one_request() {
        let (mut signals, began) = (Signalled::default(), Instant::now());
        let expected = [
            (0, Urgency::AfterSaving),
            (1, Urgency::Same),
            (999, Urgency::Same),
            (1000, Urgency::Now),
            (9000, Urgency::Now),
        ];
        for (millis, urgency) in expected {
            assert_eq!(signals.note(SIGINT, began + Duration::from_millis(millis)), urgency, "{millis} ms");
        }
    }

    #[test]
    fn a_signal_of_one_process_goes_to_the_others_once_and_late() {
        let mut signals = Signalled::default();
        signals.note_stopped(SIGINT);
        let late = Instant::now() + 2 * HEARING;
        assert_eq!(signals.late_to_others(Instant::now()), None, "they may end by themselves");
        assert_eq!((signals.late_to_others(late), signals.late_to_others(late)), (Some(SIGINT), None));
        let mut all = Signalled::default();
        all.note(SIGTERM, Instant::now());
        all.note_stopped(SIGTERM);
        assert_eq!(all.late_to_others(late), None, "all have received it");
    }
}
