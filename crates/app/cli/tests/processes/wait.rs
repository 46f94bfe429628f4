//! Waits for states of other processes.

use std::time::{Duration, Instant};

/// Longest wait for a state that must come.
const PATIENCE: Duration = Duration::from_secs(240);

/// Asks `found` again and again until it finds something.
#[track_caller]
pub fn wait<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{what} has not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}
