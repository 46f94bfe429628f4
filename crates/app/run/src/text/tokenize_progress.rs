//! Lines about text that becomes tokens.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use config::figures::{counted, grouped};
use data::{DataError, Earlier, Listener, Progress};

use crate::messages::stderr::tell;

/// Time between two lines.
const SILENCE: Duration = Duration::from_secs(5);

/// Prints a line on the standard error every five seconds.
pub struct TokenizeProgress {
    began: Instant,
    last: RefCell<Instant>,
}

impl TokenizeProgress {
    /// Begins to count.
    pub fn begin() -> TokenizeProgress {
        let now = Instant::now();
        TokenizeProgress { began: now, last: RefCell::new(now) }
    }
}

impl Listener for TokenizeProgress {
    fn earlier(&self, earlier: &Earlier) {
        tell(&earlier_line(earlier));
    }

    fn skipped(&self, error: &DataError) {
        tell(&format!("warning: left out by data.odd_files: {error}\n"));
    }

    fn progress(&self, progress: Progress) {
        if self.last.borrow().elapsed() < SILENCE {
            return;
        }
        self.last.replace(Instant::now());
        tell(&line(progress, self.began.elapsed()));
    }
}

fn earlier_line(earlier: &Earlier) -> String {
    match earlier {
        Earlier::Continued { input, path, files, records, documents, tokens } => {
            let place = match path {
                Some(path) => {
                    let (number, path, records) = (grouped(input + 1), path.display(), counted(*records, "record"));
                    format!("in file {number} of {}, {path}, after {records} of it", grouped(*files))
                }
                None => format!("after the last of {}", counted(*files, "file")),
            };
            let (documents, tokens) = (counted(*documents, "document"), counted(*tokens, "token"));
            format!("resuming {place}: an earlier run has written {documents}, {tokens}\n")
        }
        Earlier::Changed { out } => {
            let out = out.display();
            format!(
                "the parts of {out} changed since an earlier run wrote them; the text is tokenized from its beginning\n"
            )
        }
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
    fn a_resumption_has_its_place() {
        let (path, files) = (Some("in/3.jsonl".into()), 12);
        let continued = Earlier::Continued { input: 3, path, files, records: 17, documents: 1_200, tokens: 3_000_000 };
        assert_eq!(
            earlier_line(&continued),
            "resuming in file 4 of 12, in/3.jsonl, after 17 records of it: an earlier run has written 1,200 documents, \
             3,000,000 tokens\n"
        );
        let done = Earlier::Continued { input: 1, path: None, files: 1, records: 0, documents: 1, tokens: 2 };
        assert_eq!(
            earlier_line(&done),
            "resuming after the last of 1 file: an earlier run has written 1 document, 2 tokens\n"
        );
    }

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
