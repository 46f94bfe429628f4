//! Work that prints nothing until it is done: a line every ten seconds shows that it continues, or one line of a
//! terminal that changes every second.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::screen::output::{harmless, tell};
use crate::screen::terminal;

/// How long work may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// How long work may be silent for a person who waits for its result.
const SECOND: Duration = Duration::from_secs(1);
/// The beginning of a line of a terminal, which is then empty.
const EMPTY_LINE: &str = "\r\x1b[2K";
/// Columns that stay free for `^C`.
const FREE_COLUMNS: usize = 5;

/// Does `work`, and prints on the standard error every ten seconds that `what` continues.
pub fn announced_while<T>(what: &str, work: impl FnOnce() -> T) -> T {
    announced_by(|elapsed| format!("{what}: {} s so far", elapsed.as_secs()), work)
}

/// Does `work`, and prints on the standard error every ten seconds the line that `said` makes of the time so far.
pub fn announced_by<T>(said: impl Fn(Duration) -> String + Sync, work: impl FnOnce() -> T) -> T {
    every(SILENCE, |elapsed| tell(&format!("{}\n", said(elapsed))), work)
}

/// Does `work`. Where a terminal reads the standard error, a line that `said` makes of the time so far changes there
/// every second, and is gone after the work; elsewhere nothing is printed.
pub fn shown_while<T>(said: impl Fn(Duration) -> String + Sync, work: impl FnOnce() -> T) -> T {
    if !terminal::errors_have_codes() {
        return work();
    }
    let is_shown = AtomicBool::new(false);
    let columns = terminal::columns_of_errors();
    let show = |elapsed: Duration| {
        is_shown.store(true, Ordering::Relaxed);
        draw(&format!("{EMPTY_LINE}{}", cut(&harmless(&said(elapsed)), columns)));
    };
    let result = every(SECOND, show, work);
    if is_shown.into_inner() {
        draw(EMPTY_LINE);
    }
    result
}

/// The part of a line that fits: a terminal writes over the last of several lines only.
fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns.saturating_sub(FREE_COLUMNS)).collect()
}

/// Nothing depends on whether it arrives.
fn draw(text: &str) {
    let mut terminal = io::stderr().lock();
    let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

fn every<T>(silence: Duration, announce: impl Fn(Duration) + Sync, work: impl FnOnce() -> T) -> T {
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

    #[test]
    fn a_line_is_shorter_than_its_window() {
        let line = "priced 3 of 5 layouts in 2 s";
        assert_eq!(cut(line, 80), line);
        assert_eq!(cut(line, 18), "priced 3 of 5");
        assert_eq!(cut(line, 4), "");
    }
}
