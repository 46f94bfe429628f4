//! The part of a launcher in the report of a failure: exit codes and signals that it saw.

use std::path::Path;

use blame::{Attempt, Attempts, Cause, CauseKind, LauncherPart, now_ns};

use crate::failure::Failure;
use crate::launch::restart::{Restart, Trained};
use crate::launch::spec::Language;
use crate::launch::supervisor::{Outcome, Supervised};
use crate::messages::stderr::tell;
use crate::places::newest_checkpoint::{newest_checkpoint, shown_by};
use crate::watch::{Event, Notify, fail_status};

/// Largest difference of the clocks of two hosts.
const CLOCKS_NS: u64 = 60_000_000_000;

/// The remedy where process 0 has not begun an attempt: some process did not start.
#[derive(Clone, Copy, Debug)]
pub enum Without {
    /// Nothing: the launcher of this agent sees to it, or another launcher has started nothing that could fail.
    Nothing,
    /// An attempt of this number of processes begins and ends with its report.
    Begins(usize),
}

impl Without {
    fn attempt(self, attempts: &Attempts) -> Option<Attempt> {
        match self {
            Without::Nothing => None,
            Without::Begins(processes) => attempts.begin(0, processes).ok(),
        }
    }
}

/// An attempt of a run as a launcher, or the agent of a host, watches it.
pub struct Watched {
    /// The run, where the command trains one.
    trained: Option<Trained>,
    host: String,
    began_ns: u64,
    /// Attempts that were there before.
    known: Vec<u32>,
    oom_kills: u64,
}

impl Watched {
    /// Begins to watch the command of pleach `words` in the folder `directory`.
    pub fn begin(words: &[String], language: Language, directory: &Path, host: &str) -> Watched {
        let trained =
            Restart::trained(words, language).map(|run| Trained { folder: directory.join(run.folder), ..run });
        let open = trained.as_ref().and_then(|run| Attempts::of_run(&run.folder).open().ok()).unwrap_or_default();
        let known = open.iter().map(Attempt::number).collect();
        Watched { trained, host: host.into(), began_ns: now_ns(), known, oom_kills: oom_kills() }
    }

    /// Adds what this process saw of a failure to the attempt. Nothing where it ended well, or the input was refused.
    pub fn note(&self, supervised: &Supervised, without: Without) -> Option<Attempt> {
        let (code, message) = match &supervised.outcome {
            Outcome::Failed { code, message } if *code != Failure::INPUT => (*code, message.clone()),
            Outcome::Done | Outcome::Stopped { .. } | Outcome::Failed { .. } => return None,
        };
        let attempts = Attempts::of_run(&self.trained.as_ref()?.folder);
        let attempt = attempts
            .open()
            .ok()?
            .into_iter()
            .rfind(|attempt| self.has(attempt))
            .or_else(|| without.attempt(&attempts))?;
        let part = LauncherPart {
            host: self.host.clone(),
            at_ns: now_ns(),
            ends: supervised.ends.clone(),
            oom_kills: oom_kills().saturating_sub(self.oom_kills),
            message: format!("{message} (exit code {code})"),
        };
        // The message of the failure is printed in any case.
        attempt.add_launcher(&part).ok().map(|()| attempt)
    }

    /// Whether an attempt is one of this launcher: it was not there before, whatever the date is now, or process 0 on
    /// another host has begun it in these moments.
    fn has(&self, attempt: &Attempt) -> bool {
        !self.known.contains(&attempt.number()) || attempt.started_ns().saturating_add(CLOCKS_NS) >= self.began_ns
    }

    /// Notes the ends as [`Watched::note`] does, and writes the report, for nobody else is left to add to it.
    pub fn report(&self, supervised: &Supervised, without: Without) {
        let (Some(attempt), Some(trained)) = (self.note(supervised, without), &self.trained) else {
            return;
        };
        let run = &trained.folder;
        fail_status(run);
        if let Ok(report) = attempt.report(newest_checkpoint(run)) {
            let line = format!("attempt {}: {}", report.attempt, report.line());
            tell(&format!("{line}; {}\n", shown_by(run)));
            // Where process 0 could say so, it has called the command itself.
            let is_of_first = report.process == Some(0) || report.cause.kind == CauseKind::NotStarted;
            if is_of_first && is_sudden(&report.cause) {
                trained.left_out.iter().for_each(|line| tell(line));
                if let Some(command) = &trained.notify {
                    Notify::new(command, run).event(Event::Failed, report.step, &line);
                }
            }
        }
    }
}

/// Whether a process that failed so had no time to call a command.
fn is_sudden(cause: &Cause) -> bool {
    match cause.kind {
        CauseKind::Signal
        | CauseKind::ExitCode
        | CauseKind::NotStarted
        | CauseKind::Silent
        | CauseKind::Vanished
        | CauseKind::Network => true,
        // The system kills a process, or a rank finds no memory.
        CauseKind::OutOfMemory => cause.signal.is_some(),
        CauseKind::Deadline
        | CauseKind::Grace
        | CauseKind::NonFinite
        | CauseKind::Spike
        | CauseKind::Corruption
        | CauseKind::Io
        | CauseKind::DiskFull
        | CauseKind::Panic
        | CauseKind::Disagreement
        | CauseKind::Device
        | CauseKind::OtherRank
        | CauseKind::Other => false,
    }
}

/// Processes that the system has killed so far for lack of memory: in the control group of this process, or on its
/// host.
fn oom_kills() -> u64 {
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let events = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.events"));
    let counted = events.or_else(|_| std::fs::read_to_string("/proc/vmstat")).unwrap_or_default();
    let count = counted.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The date of a host may be set back while a launcher waits: attempts that begin later are its own all the same.
    #[test]
    fn an_attempt_is_the_launchers_own_whatever_the_date_is() {
        let run = std::env::temp_dir().join(format!("pleach-watched-{}", std::process::id()));
        let attempts = Attempts::of_run(&run);
        let earlier = attempts.begin(3, 1).expect("an attempt");
        let language = Language { training: |_| Ok(None), has_command: |_| false };
        let watched = Watched::begin(&["doctor".into()], language, &run, "node0");
        let in_an_hour = watched.began_ns + 3_600_000_000_000;
        let watched = Watched { began_ns: in_an_hour, known: vec![earlier.number()], ..watched };
        let later = attempts.begin(3, 1).expect("an attempt");
        assert_eq!([&earlier, &later].map(|attempt| watched.has(attempt)), [false, true]);
        let in_these_moments = Watched { began_ns: earlier.started_ns(), ..watched };
        assert!(in_these_moments.has(&earlier), "process 0 of another host has begun it");
        std::fs::remove_dir_all(&run).expect("removed");
    }
}
