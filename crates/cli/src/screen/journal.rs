//! Messages of a run: on its screen, and in `train.log` in its folder.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Mutex;

use sync::lock;

use crate::screen::narrow::wrapped;
use crate::screen::{output, terminal};

/// Where the messages of a run go in addition to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// People, who read the standard output.
    People,
    /// Programs or nobody: messages are in the log alone.
    Nobody,
}

/// The log of a run, and who hears its messages. A run continues where they do not arrive.
#[derive(Debug)]
pub struct Journal {
    audience: Audience,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    /// The first error of a message that is not in the file.
    failure: Option<io::Error>,
}

impl Journal {
    /// Messages to `audience` and into `file`.
    pub fn new(audience: Audience, file: File) -> Journal {
        Journal { audience, log: Mutex::new(Log { file, failure: None }) }
    }

    /// Why a message is missing in the log, the first time that it is asked after that.
    pub fn take_failure(&self) -> Option<io::Error> {
        lock(&self.log).failure.take()
    }

    /// Whether somebody reads more than steps.
    pub fn has_audience(&self) -> bool {
        match self.audience {
            Audience::People => true,
            Audience::Nobody => false,
        }
    }

    /// Writes `text`, which ends its line, into the log only.
    pub fn log(&self, text: &str) {
        let mut log = lock(&self.log);
        let written = log.file.write_all(output::harmless(text).as_bytes());
        log.failure = log.failure.take().or(written.err());
    }

    /// Writes `text` for those who listen, on the stream of the steps, in the columns of its window.
    pub fn say(&self, text: &str) {
        self.log(text);
        if self.has_audience() {
            // A reader who is gone has read enough, and a full disk that holds the stream is noticed by the next step.
            let _ = output::print(&wrapped(text, terminal::columns()));
        }
    }

    /// Writes `text`, which nobody may miss: for those who listen on the stream of the steps, for programs on the
    /// standard error.
    pub fn tell(&self, text: &str) {
        match self.audience {
            Audience::People => self.say(text),
            Audience::Nobody => self.warn(text),
        }
    }

    /// Writes a warning, which is for everyone, on the standard error.
    pub fn warn(&self, text: &str) {
        self.log(text);
        output::tell(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_that_does_not_arrive_is_kept() {
        let full = || File::options().write(true).open("/dev/full").expect("the device");
        let journal = Journal::new(Audience::Nobody, full());
        assert!(journal.take_failure().is_none());
        journal.log("one\n");
        journal.log("two\n");
        assert!(files::is_full(&journal.take_failure().expect("a failure")));
    }
}
