//! Messages of a run: to its observer, and in `train.log` in its folder.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Mutex;

use sync::lock;

use crate::messages::stderr;
use crate::training::observer::{Observer, Visibility};

/// A stream of a process that people or programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output, which has the steps.
    Output,
    /// The standard error, which has warnings.
    Errors,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Output => "standard output",
            Stream::Errors => "standard error",
        }
    }
}

/// The log of a run, and the observer that gets its messages. A run continues where they do not arrive: a stream that
/// cannot be written is left out from then on, and the log has all.
pub struct EventLog<'a> {
    observer: &'a dyn Observer,
    log: Mutex<Log>,
    lost: Mutex<Vec<Stream>>,
}

#[derive(Debug)]
struct Log {
    file: File,
    /// The first error of a message that is not in the file.
    failure: Option<io::Error>,
}

impl<'a> EventLog<'a> {
    /// Messages to `observer` and into `file`.
    pub fn new(observer: &'a dyn Observer, file: File) -> EventLog<'a> {
        EventLog { observer, log: Mutex::new(Log { file, failure: None }), lost: Mutex::default() }
    }

    /// Why a message is missing in the log, the first time that it is asked after that.
    pub fn take_failure(&self) -> Option<io::Error> {
        lock(&self.log).failure.take()
    }

    /// Whether somebody reads more than steps.
    pub fn is_shown(&self) -> bool {
        match self.observer.visibility() {
            Visibility::Shown => true,
            Visibility::Hidden => false,
        }
    }

    /// Whether messages for them still arrive.
    pub fn has_screen(&self) -> bool {
        self.is_shown() && self.has(Stream::Output)
    }

    fn has(&self, stream: Stream) -> bool {
        !lock(&self.lost).contains(&stream)
    }

    /// Notes that `stream` cannot be written, and says so once: in the log, and on the other stream.
    pub fn lose(&self, stream: Stream, error: &io::Error) {
        let is_known = {
            let mut lost = lock(&self.lost);
            let is_known = lost.contains(&stream);
            lost.push(stream);
            is_known
        };
        if is_known {
            return;
        }
        let text = format!(
            "{WARNING}the {} cannot be written: {error}; the run continues without it, and train.log has its lines\n",
            stream.name()
        );
        match stream {
            Stream::Output => self.warn(&text),
            Stream::Errors => self.say(&text),
        }
    }

    /// Writes `text`, which ends its line, into the log only.
    pub fn log(&self, text: &str) {
        let mut log = lock(&self.log);
        let written = log.file.write_all(stderr::harmless(text).as_bytes());
        log.failure = log.failure.take().or(written.err());
    }

    /// Writes `text` for those who listen, on the stream of the steps.
    pub fn say(&self, text: &str) {
        self.log(text);
        self.show(text);
    }

    fn show(&self, text: &str) {
        if self.has_screen()
            && let Err(error) = self.observer.say(text)
        {
            self.lose(Stream::Output, &error);
        }
    }

    /// Writes `text`, which nobody may miss: for those who listen on the stream of the steps, for programs on the
    /// standard error.
    pub fn tell(&self, text: &str) {
        match self.observer.visibility() {
            Visibility::Shown => self.say(text),
            Visibility::Hidden => self.reach(text),
        }
    }

    /// Writes a warning, which is for everyone, on the standard error; on the stream of the steps where it is lost. It
    /// begins with the word, which is added where it is missing.
    pub fn warn(&self, text: &str) {
        self.reach(&with_word(text));
    }

    fn reach(&self, text: &str) {
        self.log(text);
        if self.has(Stream::Errors)
            && let Err(error) = self.observer.warn(text)
        {
            self.lose(Stream::Errors, &error);
        }
        if !self.has(Stream::Errors) {
            self.show(text);
        }
    }
}

/// The beginning of a warning, which screens may colour.
pub const WARNING: &str = "warning: ";

fn with_word(text: &str) -> String {
    if text.starts_with(WARNING) { text.into() } else { format!("{WARNING}{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::observer::EndedStep;

    #[test]
    fn the_first_message_that_does_not_arrive_is_kept() {
        struct FailingObserver;
        impl Observer for FailingObserver {
            fn step(&self, _step: &EndedStep<'_>) -> io::Result<()> {
                Ok(())
            }
        }
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let event_log = EventLog::new(&FailingObserver, full);
        assert!(event_log.take_failure().is_none());
        event_log.log("one\n");
        event_log.log("two\n");
        assert!(files::is_full(&event_log.take_failure().expect("a failure")));
    }

    #[test]
    fn a_warning_has_the_word_once() {
        assert_eq!(with_word("not saved\n"), "warning: not saved\n");
        assert_eq!(with_word("warning: not saved\n"), "warning: not saved\n");
    }
}
