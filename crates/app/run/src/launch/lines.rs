//! Output of a process on the standard error of this one, line by line with a label.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use sync::{NoThread, lock};

use crate::messages::stderr::tell;

/// Longest piece of a line that is kept together.
const MAX_LINE: u64 = 64 << 10;

/// Lines that a report shows of a program that failed.
const KEPT: usize = 3;

/// The last lines of a program's standard error that are not empty.
#[derive(Clone, Debug, Default)]
pub struct LastLines {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Reads them, until the last process that may write there has ended.
    reader: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl LastLines {
    fn note(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line).trim().to_owned();
        // Launchers draw frames.
        if line.chars().any(char::is_alphanumeric) {
            let mut kept = lock(&self.lines);
            kept.push_back(line);
            while kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }

    /// Copies `output` on a thread of its own until it ends, and keeps its last lines.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn copy(&self, output: impl Read + Send + 'static) -> Result<(), NoThread> {
        let own = self.clone();
        let copy = move || {
            copy_to(output, "", |line| {
                own.note(line);
                tell(&String::from_utf8_lossy(line));
            });
        };
        *lock(&self.reader) = Some(sync::start("lines", copy)?);
        Ok(())
    }

    /// The lines, oldest first, once the output has ended; none are left.
    pub fn take(&self) -> Vec<String> {
        let reader = lock(&self.reader).take();
        if let Some(reader) = reader {
            drop(reader.join());
        }
        lock(&self.lines).drain(..).collect()
    }
}

/// Copies `output` on a thread of its own until it ends.
///
/// # Errors
/// A thread that cannot be started.
pub fn copy(output: impl Read + Send + 'static, label: String) -> Result<JoinHandle<()>, NoThread> {
    sync::start("lines", move || copy_to(output, &label, |line| tell(&String::from_utf8_lossy(line))))
}

/// Calls `write` with each labelled line of `output`, whole, so that lines of different processes do not mix.
fn copy_to(output: impl Read, label: &str, mut write: impl FnMut(&[u8])) {
    let mut reader = BufReader::new(output);
    loop {
        let mut line = label.as_bytes().to_vec();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) => line.push(b'\n'),
        }
        write(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_that_say_something_are_kept() {
        let last_lines = LastLines::default();
        let text = b"one\ntwo\n=====\nthree\n\n  four  \n-----\n";
        copy_to(&text[..], "", |line| last_lines.note(line));
        assert_eq!(last_lines.take(), ["two", "three", "four"]);
        assert_eq!(last_lines.take(), [""; 0]);
    }

    #[test]
    fn every_line_has_the_label() {
        let mut lines = vec![];
        copy_to(&b"one\n\ntwo\nlast"[..], "[3] ", |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        assert_eq!(lines, ["[3] one\n", "[3] \n", "[3] two\n", "[3] last\n"]);
    }
}
