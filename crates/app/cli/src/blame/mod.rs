//! `pleach blame`: why a run failed.

use std::path::Path;

use blame::{Attempt, AttemptError, Attempts, Report};
use checkpoint::is_in_use;
use run::failure::Failure;
use run::messages::stderr::tell;
use run::places::names::CHECKPOINTS;
use run::places::newest_checkpoint::newest_checkpoint;
use run::places::unfinished::tell_unfinished;
use run::signals::interrupt;

use crate::arguments::blame::BlameArguments;
use crate::arguments::format::Format;
use crate::screen::output::print;

/// Prints what the arguments ask for.
///
/// # Errors
/// A folder without a failed attempt, a report that cannot be read.
pub fn blame(arguments: &BlameArguments) -> Result<(), Failure> {
    interrupt::ends_at_once()?;
    let run = arguments.run.as_path();
    if !run.is_dir() {
        return Err(Failure::Input(format!("{} is not a folder; name the folder of a run", run.display())));
    }
    tell_unfinished(run);
    let attempts = Attempts::of_run(run);
    let mut reports: Vec<Report> = vec![];
    for number in attempts.reported().map_err(unusable)? {
        reports.push(attempts.report(number).map_err(unusable)?);
    }
    let open = attempts.open().map_err(unusable)?;
    if is_in_use(&run.join(CHECKPOINTS)) {
        if let Some(running) = open.last() {
            tell(&format!("attempt {} is running\n", running.number()));
        }
    } else {
        for attempt in &open {
            reports.push(concluded(attempt, run)?);
        }
    }
    match (arguments.attempt, arguments.list) {
        (Some(number), _) => {
            let found = reports.iter().find(|report| report.attempt == number);
            show(found.ok_or_else(|| none(run, &format!("attempt {number} has no report")))?, arguments)
        }
        (None, true) => list(&reports, run, arguments.format()),
        (None, false) => show(reports.last().ok_or_else(|| none(run, "no attempt of it has failed"))?, arguments),
    }
}

/// The report of an attempt that is over. It is written down, unless the folder cannot be written.
fn concluded(attempt: &Attempt, run: &Path) -> Result<Report, Failure> {
    let newest = newest_checkpoint(run);
    attempt.report(newest).or_else(|_| attempt.judged(newest)).map_err(unusable)
}

fn show(report: &Report, arguments: &BlameArguments) -> Result<(), Failure> {
    match arguments.format() {
        Format::Text => print(&report.text(&arguments.run.display().to_string(), newest_checkpoint(&arguments.run))),
        Format::Json => print(&json(report)?),
    }
}

fn list(reports: &[Report], run: &Path, format: Format) -> Result<(), Failure> {
    if reports.is_empty() {
        return Err(none(run, "no attempt of it has failed"));
    }
    match format {
        Format::Text => print(
            &reports
                .iter()
                .map(|report| format!("attempt {}  {}\n", report.attempt, report.line()))
                .collect::<String>(),
        ),
        Format::Json => print(&json(&reports)?),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|error| Failure::Work(error.to_string()))
}

fn none(run: &Path, why: &str) -> Failure {
    Failure::Input(format!("{}: {why}; `pleach blame {} --list` lists the reports", run.display(), run.display()))
}

fn unusable(error: AttemptError) -> Failure {
    Failure::Input(error.to_string())
}
