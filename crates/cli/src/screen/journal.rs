//! Messages of a run: on its screen, and in `train.log` in its folder.

use std::fs::File;
use std::io::Write;
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

/// The log of a run, and who hears its messages. Nothing depends on whether they arrive.
#[derive(Debug)]
pub struct Journal {
    audience: Audience,
    file: Mutex<File>,
}

impl Journal {
    /// Messages to `audience` and into `file`.
    pub fn new(audience: Audience, file: File) -> Journal {
        Journal { audience, file: Mutex::new(file) }
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
        let _ = lock(&self.file).write_all(output::harmless(text).as_bytes());
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
