//! Reports of a run while it trains.

use std::io;
use std::path::Path;

use train::StepReport;

use crate::failure::Failure;
use crate::messages::stderr;
use crate::records::rates::Rates;
use crate::records::step_line::{Colour, RemainingTime, step_line};
use crate::signals::interrupt::Interrupt;

/// Whether people read the output of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// People read it: they get more than the steps.
    Shown,
    /// Programs read it, or nobody: messages are in the log alone.
    Hidden,
}

/// Receives the events of a run, in process 0. The folder of the run has all of them in `metrics.jsonl` and
/// `train.log`.
///
/// A run does not end because its observer cannot show something: an error is in the log, and the observer hears of no
/// step after it.
pub trait Observer: Sync {
    /// Whether people read the output.
    fn visibility(&self) -> Visibility {
        Visibility::Hidden
    }

    /// Steps from one line that stays to the next, in a run of `steps` steps whose file leaves it open.
    fn usual_distance(&self, _steps: u32) -> u32 {
        1
    }

    /// The run is about to start, and has done `done` of its `steps` steps; it starts again where it returns to a
    /// checkpoint.
    fn started(&self, _done: u32, _steps: u32) {}

    /// A step has ended.
    ///
    /// # Errors
    /// The step cannot be shown.
    fn step(&self, step: &EndedStep<'_>) -> io::Result<()>;

    /// Something was measured or sampled between steps.
    ///
    /// # Errors
    /// The measurement cannot be shown.
    fn measured(&self, _measured: &Measured<'_>) -> io::Result<()> {
        Ok(())
    }

    /// A line to know in addition to the steps: a checkpoint, a slow rank, a signal.
    ///
    /// # Errors
    /// The line cannot be shown.
    fn note(&self, _line: &str) -> io::Result<()> {
        Ok(())
    }

    /// A text about the whole run, before its steps or after them.
    ///
    /// # Errors
    /// The text cannot be shown.
    fn say(&self, _text: &str) -> io::Result<()> {
        Ok(())
    }

    /// A warning, which is for everyone; by default it goes to the standard error.
    ///
    /// # Errors
    /// The warning cannot be shown.
    fn warn(&self, text: &str) -> io::Result<()> {
        stderr::write_message(&mut io::stderr(), text)
    }

    /// Others are about to write where the observer shows something that changes.
    ///
    /// # Errors
    /// The place cannot be cleared.
    fn clear(&self) -> io::Result<()> {
        Ok(())
    }

    /// The run in `folder` has ended well, and people read: its weights may continue `beginning` until an
    /// `interrupt`.
    ///
    /// # Errors
    /// A sample that fails; the run is done all the same.
    fn sample(&self, _folder: &Path, _beginning: &str, _interrupt: &Interrupt) -> Result<(), Failure> {
        Ok(())
    }
}

/// A step that has ended.
pub struct EndedStep<'a> {
    pub report: &'a StepReport,
    pub rates: &'a Rates,
    /// Steps of the run.
    pub steps: u32,
    /// Whether its line stays.
    pub is_due: bool,
    /// The line of `metrics.jsonl`.
    pub record: &'a str,
}

impl EndedStep<'_> {
    /// The step as a line of text, in at most `columns` columns.
    pub fn line(&self, remaining_time: RemainingTime, columns: Option<usize>, colour: Colour) -> String {
        step_line((self.report, self.steps), self.rates, remaining_time, columns, colour)
    }
}

/// A measurement or a sample between steps.
pub struct Measured<'a> {
    /// The line of `train.log`.
    pub line: &'a str,
    /// Whether the end of the run tells it again.
    pub is_told_again: bool,
    /// The line of `metrics.jsonl`.
    pub record: &'a str,
}
