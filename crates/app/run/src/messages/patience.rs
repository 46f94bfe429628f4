//! Work that prints nothing until it is done: a line every ten seconds shows that it continues.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::messages::stderr::tell;

/// How long work may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Does `work`, and prints on the standard error every ten seconds that `what` continues.
pub fn announced_while<T>(what: &str, work: impl FnOnce() -> T) -> T {
    announced_by(|elapsed| format!("{what}: {} s so far", elapsed.as_secs()), work)
}

/// Does `work`, and prints on the standard error every ten seconds the line that `said` makes of the time so far.
pub fn announced_by<T>(said: impl Fn(Duration) -> String + Sync, work: impl FnOnce() -> T) -> T {
    every(SILENCE, |elapsed| tell(&format!("{}\n", said(elapsed))), work)
}

/// Does `work`, and calls `announce` with the time so far after each `silence`.
pub fn every<T>(silence: Duration, announce: impl Fn(Duration) + Sync, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        let announce = &announce;
        // Without this thread the work is silent, and no less right.
        let _ = sync::start_scoped(scope, "patience", move || {
            while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(silence) {
                announce(began.elapsed());
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_is_announced_and_short_work_is_not() {
        let (heard, hearing) = channel();
        let announced = every(
            Duration::from_millis(1),
            |elapsed| {
                // The work has ended when nobody listens.
                let _ = heard.send(elapsed);
            },
            || hearing.recv().is_ok() && hearing.recv().is_ok(),
        );
        assert!(announced, "the work has waited to be announced twice");
        assert_eq!(every(Duration::from_secs(600), |_| panic!("short work"), || 3), 3);
    }
}
