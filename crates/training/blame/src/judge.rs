//! Finds the one cause in the records of processes and launchers.

use std::collections::BTreeMap;

use crate::cause::{Cause, CauseKind, signal_name};
use crate::history::{Entry, RankHistory};
use crate::part::{LauncherPart, Moment, OwnFailure, ProcessEnd, ProcessPart, ReportedFailure};
use crate::waits;

/// Everything that is known of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    pub processes: Vec<ProcessPart>,
    pub launchers: Vec<LauncherPart>,
    /// By rank.
    pub histories: BTreeMap<usize, RankHistory>,
}

/// Whose failure it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Culprit {
    pub rank: Option<usize>,
    pub process: Option<usize>,
    pub host: Option<String>,
    pub ranks: Vec<usize>,
    pub step: u32,
    pub moment: Moment,
    pub instruction: String,
    pub peers: Vec<usize>,
}

/// The cause, whose it is, and who noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub cause: Cause,
    pub culprit: Culprit,
    pub noticed_by: String,
}

const SIGKILL: i32 = 9;

/// Judges. A signal that ended a process by itself comes first, for the failures of all others follow from it; then a
/// failure that a process reports of its own ranks; then what processes heard of one that said nothing; then an exit
/// code.
pub fn judge(parts: &Parts) -> Verdict {
    let by_signal = parts.killed().map(|(launcher, end)| parts.signalled(launcher, end));
    let own = || parts.own_failure().map(|(part, own)| parts.failed_itself(part, own));
    let heard = || parts.heard().map(|(by, heard)| parts.heard_of(by, heard));
    let by_exit = || parts.exited().map(|(launcher, end)| parts.ended_with_code(launcher, end));
    by_signal.or_else(own).or_else(heard).or_else(by_exit).unwrap_or_else(|| parts.unknown())
}

impl Parts {
    /// The process that was ended by a signal first, before its launcher ended any. The one that processes heard of
    /// counts more than the order of two launchers, whose clocks may differ.
    fn killed(&self) -> Option<(&LauncherPart, &ProcessEnd)> {
        let all = self.launchers.iter().flat_map(|part| part.ends.iter().map(move |end| (part, end)));
        let killed: Vec<_> = all.filter(|(_, end)| end.by_itself && end.signal.is_some()).collect();
        let named = self.heard().map(|(_, heard)| heard.process);
        let of_named = killed.iter().find(|(_, end)| end.process.is_some() && end.process == named);
        of_named.or_else(|| killed.iter().min_by_key(|(part, _)| part.at_ns)).copied()
    }

    fn exited(&self) -> Option<(&LauncherPart, &ProcessEnd)> {
        let all = self.launchers.iter().flat_map(|part| part.ends.iter().map(move |end| (part, end)));
        let mut failed = all.filter(|(_, end)| end.by_itself && end.exit_code.is_some_and(|code| code != 0));
        failed.next()
    }

    /// The failure of a rank that did not merely follow from another one.
    fn own_failure(&self) -> Option<(&ProcessPart, &OwnFailure)> {
        let named = self.heard().map(|(_, heard)| heard.process);
        let own = self.processes.iter().filter_map(|part| Some((part, part.own.as_ref()?)));
        let causes: Vec<_> = own.filter(|(_, own)| own.cause.kind != CauseKind::OtherRank).collect();
        let of_named = causes.iter().find(|(part, _)| Some(part.process) == named);
        of_named.or_else(|| causes.iter().min_by_key(|(part, _)| part.at_ns)).copied()
    }

    /// The failure that most processes heard of, and one of them.
    fn heard(&self) -> Option<(&ProcessPart, &ReportedFailure)> {
        let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
        for heard in self.processes.iter().filter_map(|part| part.heard.as_ref()) {
            *votes.entry(heard.process).or_default() += 1;
        }
        let (process, _) = votes.into_iter().max_by_key(|(process, votes)| (*votes, usize::MAX - process))?;
        self.processes.iter().find_map(|part| {
            let heard = part.heard.as_ref().filter(|heard| heard.process == process)?;
            Some((part, heard))
        })
    }

    fn signalled(&self, launcher: &LauncherPart, end: &ProcessEnd) -> Verdict {
        let signal = end.signal.unwrap_or(0);
        let is_oom = signal == SIGKILL && launcher.oom_kills > 0;
        let name = signal_name(signal);
        let named = if name.is_empty() { format!("signal {signal}") } else { format!("signal {signal} ({name})") };
        let text = match is_oom {
            true => format!("the system killed it for lack of memory, by {named}"),
            false => format!("it was killed by {named}"),
        };
        let kind = if is_oom { CauseKind::OutOfMemory } else { CauseKind::Signal };
        let cause = Cause { signal: Some(signal), ..Cause::new(kind, text) };
        Verdict { cause, culprit: self.culprit_of_end(end), noticed_by: launched_by(launcher) }
    }

    fn ended_with_code(&self, launcher: &LauncherPart, end: &ProcessEnd) -> Verdict {
        let code = end.exit_code.unwrap_or(1);
        let cause = match end.cause {
            Some(kind) => Cause::new(kind, launcher.message.clone()),
            None => {
                let text = format!("{} ended with exit code {code} and left no reason: {}", end.name, launcher.message);
                Cause::new(CauseKind::ExitCode, text)
            }
        };
        let cause = Cause { exit_code: Some(code), ..cause };
        Verdict { cause, culprit: self.culprit_of_end(end), noticed_by: launched_by(launcher) }
    }

    fn culprit_of_end(&self, end: &ProcessEnd) -> Culprit {
        match end.process {
            Some(process) => self.culprit_of_process(process, Some(end.host.clone())),
            None => Culprit { host: Some(end.host.clone()), ..Culprit::default() },
        }
    }

    fn failed_itself(&self, part: &ProcessPart, own: &OwnFailure) -> Verdict {
        let noticed_by = match own.rank {
            Some(rank) => format!("rank {rank}"),
            None if self.processes.len() > 1 => "all ranks".into(),
            None => format!("process {}", part.process),
        };
        let culprit = match (own.about, own.rank) {
            // Nobody is to blame; where the ranks of this process were tells what took so long.
            (None, None) if own.cause.kind == CauseKind::Grace => {
                let Culprit { step, moment, instruction, .. } = self.culprit_of_process(part.process, None);
                Culprit { step, moment, instruction, ..Culprit::default() }
            }
            // Who is late may wait for another rank itself.
            (Some(late), _) => self.culprit_of_rank(waits::origin(late, &self.histories)),
            (None, Some(rank)) => {
                let (step, instruction) = (own.step, own.instruction.clone());
                let of_rank = self.culprit_of_rank(rank);
                let host = of_rank.host.clone().or_else(|| Some(part.host.clone()));
                let process = of_rank.process.or(Some(part.process));
                let ranks = if of_rank.ranks.is_empty() { part.ranks.clone() } else { of_rank.ranks.clone() };
                Culprit { step, instruction, host, process, ranks, ..of_rank }
            }
            (None, None) => {
                let instruction = own.instruction.clone();
                Culprit { step: own.step, moment: own.moment, instruction, ..Culprit::default() }
            }
        };
        Verdict { cause: own.cause.clone(), culprit, noticed_by }
    }

    fn heard_of(&self, by: &ProcessPart, heard: &ReportedFailure) -> Verdict {
        let culprit = match heard.rank {
            Some(rank) => self.culprit_of_rank(rank),
            None => self.culprit_of_process(heard.process, Some(heard.host.clone())),
        };
        let cause = Cause::new(heard.kind, heard.text.clone());
        Verdict { cause, culprit, noticed_by: format!("process {}", by.process) }
    }

    fn unknown(&self) -> Verdict {
        let text = "all processes ended and left no reason: they were killed, or the machine stopped";
        let mut processes: Vec<usize> = self.histories.values().map(|history| history.header.process).collect();
        processes.dedup();
        let step = self.histories.values().filter_map(RankHistory::last).map(|last| last.step).max().unwrap_or(0);
        let culprit = match processes.as_slice() {
            [one] => self.culprit_of_process(*one, None),
            _ => Culprit { step, ..Culprit::default() },
        };
        Verdict { cause: Cause::new(CauseKind::Vanished, text), culprit, noticed_by: "nobody".into() }
    }

    fn culprit_of_rank(&self, rank: usize) -> Culprit {
        let Some(own) = self.histories.get(&rank) else { return Culprit { rank: Some(rank), ..Culprit::default() } };
        let of_process = self.culprit_of_process(own.header.process, Some(own.header.host.clone()));
        at(own.last(), Culprit { rank: Some(rank), ..of_process })
    }

    /// A process whose ranks ended all at once.
    fn culprit_of_process(&self, process: usize, host: Option<String>) -> Culprit {
        let own: Vec<&RankHistory> =
            self.histories.values().filter(|history| history.header.process == process).collect();
        let part = self.processes.iter().find(|part| part.process == process);
        let ranks = match own.as_slice() {
            [] => part.map_or(vec![], |part| part.ranks.clone()),
            own => own.iter().map(|history| history.header.rank).collect(),
        };
        let rank = <[usize; 1]>::try_from(ranks.clone()).ok().map(|[rank]| rank);
        let last = own.iter().filter_map(|history| history.last()).max_by_key(|last| (last.step, last.began_ns));
        let host = own.first().map(|history| history.header.host.clone()).or(host);
        at(last, Culprit { rank, process: Some(process), host, ranks, ..Culprit::default() })
    }
}

fn at(entry: Option<&Entry>, culprit: Culprit) -> Culprit {
    let Some(entry) = entry else { return culprit };
    Culprit { step: entry.step, instruction: entry.instruction.clone(), peers: entry.peers.clone(), ..culprit }
}

fn launched_by(launcher: &LauncherPart) -> String {
    format!("pleach launch on {}", launcher.host)
}
