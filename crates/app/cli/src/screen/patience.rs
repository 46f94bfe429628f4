//! Work for which a person waits: one line of a terminal changes every second until it is done.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use run::messages::patience::every;
use run::messages::stderr::harmless;

use crate::screen::terminal;

/// How long work may be silent for a person who waits for its result.
const SECOND: Duration = Duration::from_secs(1);
/// The beginning of a line of a terminal, which is then empty.
const EMPTY_LINE: &str = "\r\x1b[2K";
/// Columns that stay free for `^C`.
const FREE_COLUMNS: usize = 5;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shorter_than_its_window() {
        let line = "priced 3 of 5 layouts in 2 s";
        assert_eq!(cut(line, 80), line);
        assert_eq!(cut(line, 18), "priced 3 of 5");
        assert_eq!(cut(line, 4), "");
    }
}
