//! A report in plain words, for people who do not know pleach.

use std::fmt::Write as _;

use crate::advice::advice;
use crate::cause::{CauseKind, signal_name};
use crate::date::utc;
use crate::history::Entry;
use crate::part::Moment;
use crate::report::{RankReport, Report};

/// Columns of a line.
const WIDTH: usize = 80;
/// Instructions of the culprit that are shown.
const SHOWN_INSTRUCTIONS: usize = 8;
/// Lines of the table of all ranks.
const SHOWN_RANKS: usize = 24;
/// Columns of an instruction in a table.
const INSTRUCTION: usize = 44;

impl Report {
    /// The report as text of at most 80 columns. `run` is the folder of the run, whose newest checkpoint is now that
    /// after step `newest`.
    pub fn text(&self, run: &str, newest: Option<u32>) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{}", self.headline(run));
        text += "\n";
        text += &wrapped(&self.sentence());
        text += "\n";
        text += &self.facts();
        text += "\n";
        text += &wrapped(&self.reason());
        text += &wrapped(advice(&self.cause));
        text += "\n";
        text += &match newest.filter(|newest| Some(*newest) > self.newest_checkpoint) {
            Some(newest) => self.continuation(run, newest),
            None => self.remedy(run),
        };
        text += &self.last_instructions();
        text += &self.all_ranks();
        text
    }

    /// One line: who, where and why.
    pub fn line(&self) -> String {
        let place = match (self.step, self.moment, self.instruction.as_str()) {
            (0, _, _) => " before the first step".to_string(),
            (step, Moment::AfterStep, _) => format!(" after step {step}"),
            (step, Moment::InStep, "") => format!(" in step {step}"),
            (step, Moment::InStep, instruction) => format!(" in step {step} at \"{instruction}\""),
        };
        format!("{} {}{place}", self.who(), self.deed())
    }

    fn headline(&self, run: &str) -> String {
        let seconds = self.failed_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        wrapped(&format!("{run}: attempt {} failed on {}, after {seconds:.0} s.", self.attempt, utc(self.failed_ns)))
    }

    /// `Rank 5`, or as many as failed together.
    fn who(&self) -> String {
        if let (CauseKind::NotStarted, Some(host)) = (self.cause.kind, &self.host) {
            return format!("host {host}");
        }
        match (self.rank, self.ranks.as_slice(), self.process) {
            (Some(rank), _, _) => format!("rank {rank}"),
            (None, [], Some(process)) => format!("process {process}"),
            (None, [], None) => "the run".into(),
            (None, ranks, _) => listed(ranks),
        }
    }

    fn deed(&self) -> String {
        let (was, has, its) = match (self.rank, self.ranks.as_slice()) {
            (None, [_, _, ..]) => ("were", "have", "their"),
            (Some(_), _) | (None, [] | [_]) => ("was", "has", "its"),
        };
        match self.cause.kind {
            CauseKind::Signal => match self.cause.signal {
                Some(signal) if signal_name(signal).is_empty() => format!("{was} killed by signal {signal}"),
                Some(signal) => format!("{was} killed by signal {signal} ({})", signal_name(signal)),
                None => format!("{was} killed"),
            },
            CauseKind::ExitCode => {
                format!("ended with exit code {} and gave no reason", self.cause.exit_code.unwrap_or(1))
            }
            CauseKind::NotStarted => format!("did not start {its} processes"),
            CauseKind::Deadline => format!("did not do {its} part in time"),
            CauseKind::Silent => "gave no sign of life".into(),
            CauseKind::Vanished => "ended without giving a reason".into(),
            CauseKind::Grace => "did not end in time after a signal".into(),
            CauseKind::NonFinite => "computed a loss or a gradient that is not a finite number".into(),
            CauseKind::Spike => "computed a loss or a gradient norm that is far above those of the steps before".into(),
            CauseKind::Corruption => format!("{has} wrong bits"),
            CauseKind::Io => "could not read or write a file".into(),
            CauseKind::DiskFull => "could not write a file, because a disk is full".into(),
            CauseKind::OutOfMemory => "ran out of memory".into(),
            CauseKind::Panic => "panicked: a fault in the program".into(),
            CauseKind::Disagreement => format!("{was} about to do something else than the others"),
            CauseKind::Network => format!("lost {its} connection, or sent a damaged message"),
            CauseKind::Device => format!("{has} a GPU that failed"),
            CauseKind::OtherRank => "stopped because another rank failed".into(),
            CauseKind::Other => "failed".into(),
        }
    }

    fn sentence(&self) -> String {
        let who = self.who();
        let mut letters = who.chars();
        let who: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        format!("{who} {}.", self.deed())
    }

    fn facts(&self) -> String {
        let mut text = String::new();
        let mut fact = |name: &str, value: String| text += &format!("  {name:<12}  {value}\n");
        match (&self.host, self.process) {
            (Some(host), Some(process)) => fact("host", format!("{host}, process {process} of {}", self.processes)),
            (Some(host), None) => fact("host", host.clone()),
            (None, _) => {}
        }
        match self.step {
            0 => fact("step", "before the first".into()),
            step => match self.moment {
                Moment::InStep => fact("step", format!("{step} of {}", self.steps)),
                Moment::AfterStep => fact("step", format!("after step {step} of {}", self.steps)),
            },
        }
        if !self.instruction.is_empty() {
            fact("instruction", cut(&self.instruction, WIDTH - 16));
        }
        if !self.peers.is_empty() {
            fact("with", cut(&listed(&self.peers), WIDTH - 16));
        }
        fact("noticed by", cut(&self.noticed_by, WIDTH - 16));
        text
    }

    fn reason(&self) -> String {
        let mut text = format!("Reported: {}.", self.cause.text.trim_end_matches('.'));
        if let ((CauseKind::Deadline, Some(late)), Some(rank)) = (CauseKind::of_text(&self.cause.text), self.rank)
            && late != rank
        {
            text += &format!(" Rank {late} was waiting itself; all waits lead to rank {rank}.");
        }
        text
    }

    /// Steps that had updated weights, or were skipped, when the attempt failed.
    fn steps_done(&self) -> u32 {
        match self.moment {
            Moment::InStep => self.step.saturating_sub(1),
            Moment::AfterStep => self.step,
        }
    }

    fn remedy(&self, run: &str) -> String {
        match self.newest_checkpoint {
            None => {
                let lost = match self.steps_done() {
                    0 => String::new(),
                    1 => ", and 1 step is lost".into(),
                    lost => format!(", and {lost} steps are lost"),
                };
                wrapped(&format!(
                    "There is no checkpoint, so the run begins again from the start{lost}. Set run.save_every to save more often."
                ))
            }
            Some(steps) => {
                let lost = match self.steps_done().saturating_sub(steps) {
                    0 => "no step is lost".to_string(),
                    1 => "1 step after it is lost, and is done again".to_string(),
                    lost => format!("{lost} steps after it are lost, and are done again"),
                };
                format!(
                    "{}\n  pleach train --resume {run}\n",
                    wrapped(&format!("The newest checkpoint is that after step {steps}; {lost}. To resume:"))
                        .trim_end()
                )
            }
        }
    }

    /// In place of a remedy, where the run was resumed after this failure.
    fn continuation(&self, run: &str, newest: u32) -> String {
        let resumed = format!("The run was resumed since: its newest checkpoint is that after step {newest}");
        if newest >= self.steps {
            return wrapped(&format!("{resumed}, its last."));
        }
        format!("{}\n  pleach train --resume {run}\n", wrapped(&format!("{resumed}. To resume:")).trim_end())
    }

    fn last_instructions(&self) -> String {
        let own = self.rank.or_else(|| self.ranks.first().copied());
        let Some(own) =
            self.history.iter().find(|rank| Some(rank.rank) == own).filter(|own| !own.instructions.is_empty())
        else {
            return String::new();
        };
        let mut text = format!("\nThe last instructions of rank {}:\n", own.rank);
        let skipped = own.instructions.len().saturating_sub(SHOWN_INSTRUCTIONS);
        for entry in &own.instructions[skipped..] {
            let instruction = cut(&entry.instruction, INSTRUCTION);
            let took = took(entry, self.failed_ns);
            text += &format!("  step {:<7} {instruction:<INSTRUCTION$}  {took}\n", entry.step);
        }
        text
    }

    /// Where each rank was; neighbours at the same place have one line.
    fn all_ranks(&self) -> String {
        if self.history.len() < 2 {
            return String::new();
        }
        let mut lines: Vec<(Vec<&RankReport>, String)> = vec![];
        for rank in &self.history {
            let place = rank.instructions.last().map_or("no instruction yet".into(), |entry| {
                let end = if entry.is_running() { "in it" } else { "ended" };
                format!("step {:<7} {:<INSTRUCTION$}  {end}", entry.step, cut(&entry.instruction, INSTRUCTION))
            });
            match lines.last_mut() {
                Some((ranks, of_ranks)) if *of_ranks == place => ranks.push(rank),
                Some(_) | None => lines.push((vec![rank], place)),
            }
        }
        let mut text = "\nAll ranks when they were last heard of:\n".to_string();
        let hidden = lines.len().saturating_sub(SHOWN_RANKS);
        for (ranks, place) in lines.iter().take(SHOWN_RANKS) {
            let named = match ranks.as_slice() {
                [first, .., last] => format!("{}-{}", first.rank, last.rank),
                [one] => one.rank.to_string(),
                [] => String::new(),
            };
            text += format!("  {named:<10} {place}").trim_end();
            text += "\n";
        }
        if hidden > 0 {
            text += &format!("  and {hidden} more lines; `pleach blame --json` has all\n");
        }
        text
    }
}

fn took(entry: &Entry, failed_ns: u64) -> String {
    match entry.ended_ns {
        Some(ended) => format!("{:.4} s", ended.saturating_sub(entry.began_ns) as f64 / 1e9),
        None if failed_ns > entry.began_ns => {
            format!("in it, {:.1} s", failed_ns.saturating_sub(entry.began_ns) as f64 / 1e9)
        }
        None => "in it".into(),
    }
}

/// `rank 3`, `ranks 3 and 5`, `ranks 1, 3 and 5`.
fn listed(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match numbers.as_slice() {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}

/// The first `columns` characters.
fn cut(text: &str, columns: usize) -> String {
    match text.chars().count() > columns {
        true => text.chars().take(columns - 1).chain(['…']).collect(),
        false => text.into(),
    }
}

/// `text` in lines of at most [`WIDTH`] columns; a longer word has a line of its own.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
                lines += &line;
                lines += "\n";
                line.clear();
            }
            if !line.is_empty() {
                line += " ";
            }
            line += word;
        }
        lines += &line;
        lines += "\n";
    }
    lines
}
