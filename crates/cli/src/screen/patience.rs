//! Work of which nothing is heard until it is done: people are told that it goes on.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::screen::output::tell;

/// How long work may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Does `work`, and tells on the standard error every ten seconds that `what` goes on.
pub fn told_while<T>(what: &str, work: impl FnOnce() -> T) -> T {
    every(SILENCE, |elapsed| tell(&format!("{what}: {} s so far\n", elapsed.as_secs())), work)
}

fn every<T>(silence: Duration, told: impl Fn(Duration) + Sync, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        let told = &told;
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(silence) {
                told(began.elapsed());
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
    fn long_work_is_told_and_short_work_is_not() {
        let (heard, hearing) = channel();
        let told = every(
            Duration::from_millis(1),
            |elapsed| {
                // The work has ended when nobody listens.
                let _ = heard.send(elapsed);
            },
            || hearing.recv().is_ok() && hearing.recv().is_ok(),
        );
        assert!(told, "the work has waited to be told of twice");
        assert_eq!(every(Duration::from_secs(600), |_| panic!("short work"), || 3), 3);
    }
}
