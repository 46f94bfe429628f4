//! The lines of a run on the standard output.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use run::failure::Failure;
use run::messages::stderr::{harmless, write_message};
use run::records::step_line::{Colour, RemainingTime};
use run::signals::interrupt::Interrupt;
use run::{EndedStep, Measured, Observer, Visibility, WARNING};
use sync::lock;

use crate::arguments::TrainArguments;
use crate::infer::generate;
use crate::screen::bar::Bar;
use crate::screen::narrow::wrapped;
use crate::screen::terminal;

/// Lines above the bar of a run, about, where the run file does not say how many.
const LIVE_LINES: u32 = 40;

/// Where steps are printed.
pub struct Screen(Mutex<Form>);

enum Form {
    /// A line of text for each that is due.
    Lines,
    /// A JSON object for each.
    Json,
    /// One line that changes, with those that are due above it.
    Live(Bar, Colour),
    /// Nowhere.
    Quiet,
}

impl Screen {
    /// A line of the terminal that changes with every step; lines of text where the standard output is not a terminal
    /// or cannot overwrite a line; what the arguments ask for instead.
    pub fn new(arguments: &TrainArguments) -> Screen {
        let form = match (arguments.quiet, arguments.json) {
            (true, _) => Form::Quiet,
            (false, true) => Form::Json,
            (false, false) if terminal::has_codes() => Form::Live(bar(0, 0), terminal::colour()),
            (false, false) => Form::Lines,
        };
        Screen(Mutex::new(form))
    }
}

fn bar(done: u32, steps: u32) -> Bar {
    Bar::new(Box::new(io::stdout()), done, steps)
}

impl Observer for Screen {
    fn visibility(&self) -> Visibility {
        match &*lock(&self.0) {
            Form::Lines | Form::Live(..) => Visibility::Shown,
            Form::Json | Form::Quiet => Visibility::Hidden,
        }
    }

    fn usual_distance(&self, steps: u32) -> u32 {
        match &*lock(&self.0) {
            Form::Lines | Form::Json | Form::Quiet => 1,
            Form::Live(..) => (steps / LIVE_LINES).max(1),
        }
    }

    fn started(&self, done: u32, steps: u32) {
        match &mut *lock(&self.0) {
            Form::Live(live, _) => *live = bar(done, steps),
            Form::Lines | Form::Json | Form::Quiet => {}
        }
    }

    fn step(&self, step: &EndedStep<'_>) -> io::Result<()> {
        match &mut *lock(&self.0) {
            Form::Lines if step.is_due => {
                write_line(&step.line(RemainingTime::Shown, terminal::columns_of_output(), Colour::Off))
            }
            Form::Json => write_line(step.record),
            Form::Live(bar, colour) => {
                let columns = terminal::columns().unwrap_or(80);
                let line = step.is_due.then(|| step.line(RemainingTime::Hidden, Some(columns), *colour));
                let message = step.line(RemainingTime::Shown, Some(Bar::message_columns(columns)), *colour);
                bar.advance(line.as_deref(), message, columns)
            }
            Form::Lines | Form::Quiet => Ok(()),
        }
    }

    fn measured(&self, measured: &Measured<'_>) -> io::Result<()> {
        let Measured { line, is_told_again, record } = *measured;
        match &mut *lock(&self.0) {
            Form::Json => write_line(record),
            Form::Lines if !is_told_again => write_line(line),
            Form::Live(bar, _) if !is_told_again => bar.say_above(line),
            Form::Lines | Form::Live(..) | Form::Quiet => Ok(()),
        }
    }

    fn note(&self, line: &str) -> io::Result<()> {
        match &mut *lock(&self.0) {
            Form::Lines => write_line(&harmless(line)),
            Form::Live(bar, colour) => {
                bar.say_above(&coloured(&wrapped(&harmless(line), terminal::columns()), *colour))
            }
            Form::Json | Form::Quiet => Ok(()),
        }
    }

    fn say(&self, text: &str) -> io::Result<()> {
        write_message(&mut io::stdout(), &wrapped(text, terminal::columns()))
    }

    fn warn(&self, text: &str) -> io::Result<()> {
        let mut errors = io::stderr();
        let text = coloured(&harmless(text), terminal::colour_of_errors());
        errors.write_all(text.as_bytes()).and_then(|()| errors.flush())
    }

    fn clear(&self) -> io::Result<()> {
        match &mut *lock(&self.0) {
            Form::Live(bar, _) => bar.clear(),
            Form::Lines | Form::Json | Form::Quiet => Ok(()),
        }
    }

    fn sample(&self, folder: &Path, beginning: &str, interrupt: &Interrupt) -> Result<(), Failure> {
        generate::sample(folder, beginning, interrupt)
    }
}

/// A line whose first word is yellow where it is that of a warning.
fn coloured(line: &str, colour: Colour) -> String {
    match (line.strip_prefix(WARNING), colour) {
        (Some(rest), Colour::On) => format!("\x1b[33m{}\x1b[0m {rest}", WARNING.trim_end()),
        (Some(_), Colour::Off) | (None, _) => line.into(),
    }
}

fn write_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_warning_is_coloured_where_colours_are_wanted() {
        assert_eq!(coloured("warning: step 3", Colour::On), "\x1b[33mwarning:\x1b[0m step 3");
        assert_eq!(coloured("warning: step 3", Colour::Off), "warning: step 3");
        assert_eq!(coloured("step 3: warning: ", Colour::On), "step 3: warning: ");
    }
}
