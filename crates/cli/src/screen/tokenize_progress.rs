//! Lines about text that becomes tokens.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use data::{Listener, Progress};

use crate::screen::figures::grouped;
use crate::screen::output::tell;

/// Time between two lines.
const SILENCE: Duration = Duration::from_secs(5);

/// Prints a line on the standard error every five seconds.
pub struct TokenizeProgress {
    began: Instant,
    last: RefCell<Instant>,
}

impl TokenizeProgress {
    /// Begins to count.
    pub fn new() -> TokenizeProgress {
        let now = Instant::now();
        TokenizeProgress { began: now, last: RefCell::new(now) }
    }
}

impl Listener for TokenizeProgress {
    fn progress(&self, progress: Progress) {
        if self.last.borrow().elapsed() < SILENCE {
            return;
        }
        self.last.replace(Instant::now());
        tell(&line(progress, self.began.elapsed()));
    }
}

fn line(progress: Progress, elapsed: Duration) -> String {
    let Progress { files, files_done, text_bytes, documents, tokens, tokens_before } = progress;
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let rate = (tokens - tokens_before) as f64 / seconds;
    let earlier = match tokens_before {
        0 => String::new(),
        before => format!("; {} of an earlier run", grouped(before)),
    };
    format!(
        "tokenizing file {} of {}: {} documents, {} tokens, {} a second, {:.1} MB of text a second{earlier}\n",
        grouped((files_done + 1).min(files)),
        grouped(files),
        grouped(documents),
        grouped(tokens),
        grouped(rate as u64),
        text_bytes as f64 / 1e6 / seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_place_and_rate() {
        let progress = Progress {
            files: 12,
            files_done: 3,
            text_bytes: 5_000_000,
            documents: 1_200,
            tokens: 3_000_000,
            tokens_before: 1_000_000,
        };
        assert_eq!(
            line(progress, Duration::from_secs(2)),
            "tokenizing file 4 of 12: 1,200 documents, 3,000,000 tokens, 1,000,000 a second, 2.5 MB of text a second; \
             1,000,000 of an earlier run\n"
        );
    }
}
