//! The part of a launcher in the report of a failure: exit codes and signals that it saw.

use std::path::{Path, PathBuf};

use blame::{Attempt, Attempts, Cause, CauseKind, LauncherPart, now_ns};
use config::Secret;

use crate::failure::Failure;
use crate::launch::restart::Restart;
use crate::launch::supervisor::{Outcome, Supervised};
use crate::run::attempt::{newest_checkpoint, shown_by};
use crate::screen::output::tell;
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
    /// The folder of the run, where the command trains one.
    run: Option<PathBuf>,
    host: String,
    began_ns: u64,
    /// Attempts that were there before.
    known: Vec<u32>,
    oom_kills: u64,
}

impl Watched {
    /// Begins to watch the command of pleach `words` in the folder `directory`.
    pub fn begin(words: &[String], directory: &Path, host: &str) -> Watched {
        let run = Restart::trained(words).map(|folder| directory.join(folder));
        let open = run.as_deref().and_then(|run| Attempts::of_run(run).open().ok()).unwrap_or_default();
        let known = open.iter().map(Attempt::number).collect();
        Watched { run, host: host.into(), began_ns: now_ns(), known, oom_kills: oom_kills() }
    }

    /// Adds what this process saw of a failure to the attempt. Nothing where it ended well, or the input was refused.
    pub fn note(&self, supervised: &Supervised, without: Without) -> Option<Attempt> {
        let (code, message) = match &supervised.outcome {
            Outcome::Failed { code, message } if *code != Failure::INPUT => (*code, message.clone()),
            Outcome::Done | Outcome::Stopped { .. } | Outcome::Failed { .. } => return None,
        };
        let attempts = Attempts::of_run(self.run.as_deref()?);
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

    /// As [`Watched::note`], and writes the report, for nobody else is left to add to it.
    pub fn report(&self, supervised: &Supervised, without: Without) {
        let (Some(attempt), Some(run)) = (self.note(supervised, without), &self.run) else {
            return;
        };
        fail_status(run);
        if let Ok(report) = attempt.report(newest_checkpoint(run)) {
            let line = format!("attempt {}: {}", report.attempt, report.line());
            tell(&format!("{line}; {}\n", shown_by(run)));
            // Where process 0 could say so, it has called the command itself.
            let is_of_first = report.process == Some(0) || report.cause.kind == CauseKind::NotStarted;
            if let Some(notify) = notify_of(run).filter(|_| is_of_first && is_sudden(&report.cause)) {
                notify.event(Event::Failed, report.step, &line);
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

/// The command of `run.notify` in the resolved run file of the run, if it has one.
fn notify_of(run: &Path) -> Option<Notify> {
    let table: toml::Table =
        files::read_text_of_file(&run.join("run.toml"), files::InputKind::RunFile).ok()?.parse().ok()?;
    Some(Notify::new(Secret::new(table.get("run")?.get("notify")?.as_str()?.into()), run))
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
        let words = ["pleach".to_string(), "train".into()];
        let watched = Watched::begin(&words, &run, "node0");
        let in_an_hour = watched.began_ns + 3_600_000_000_000;
        let watched = Watched { began_ns: in_an_hour, known: vec![earlier.number()], ..watched };
        let later = attempts.begin(3, 1).expect("an attempt");
        assert_eq!([&earlier, &later].map(|attempt| watched.has(attempt)), [false, true]);
        let in_these_moments = Watched { began_ns: earlier.started_ns(), ..watched };
        assert!(in_these_moments.has(&earlier), "process 0 of another host has begun it");
        std::fs::remove_dir_all(&run).expect("removed");
    }
}
