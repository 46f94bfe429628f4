//! Ends the process of a rank that does not return: a thread cannot be ended from outside.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How often the watchdog looks.
const GLANCE: Duration = Duration::from_millis(100);
/// How long the ranks of a failed run may take to notice. They are notified at once, so only one that is stuck takes
/// longer.
pub const GRACE: Duration = Duration::from_secs(1);

/// Waits for the end of a run, which is when the other end of `running` is dropped. Returns what `failure` tells where
/// the run has failed and has still not ended after `grace`: some rank is stuck.
pub fn watch(running: &Receiver<()>, failure: impl Fn() -> Option<String>, grace: Duration) -> Option<String> {
    loop {
        let reported_failure = match running.recv_timeout(GLANCE) {
            Err(RecvTimeoutError::Timeout) => failure(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
        };
        if reported_failure.is_some() {
            let is_over = running.recv_timeout(grace) != Err(RecvTimeoutError::Timeout);
            return reported_failure.filter(|_| !is_over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_failed_run_that_does_not_end_is_reported() {
        let (_running, ended) = channel();
        let reported_failure = watch(&ended, || Some("rank 3 failed".into()), Duration::ZERO);
        assert_eq!(reported_failure.as_deref(), Some("rank 3 failed"));
    }

    #[test]
    fn a_run_that_ends_is_left_alone() {
        let (running, ended) = channel();
        drop(running);
        assert_eq!(watch(&ended, || Some("rank 3 failed".into()), GRACE), None);
        // It ends after the failure was seen, in time.
        let (running, ended) = channel::<()>();
        let running = std::cell::Cell::new(Some(running));
        let failure = || running.take().map(|_dropped| "rank 3 failed".into());
        assert_eq!(watch(&ended, failure, GRACE), None);
    }
}
