//! The processes that have arrived, and whether they make a run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::introduction::{Directory, Identity, Introduction, ProcessEntry, TextHash};
use crate::rejections::Rejections;

/// Numbers of missing processes that a message lists.
const SHOWN: usize = 8;

/// Introductions as process 0 collects them. Pure: the connections are elsewhere.
#[derive(Debug)]
pub(crate) struct Introductions {
    own: Introduction,
    present: BTreeMap<usize, ProcessEntry>,
    problems: Vec<String>,
}

/// The processes that have not introduced themselves by the deadline.
#[derive(Clone, Debug)]
pub(crate) struct MissingProcesses {
    pub(crate) deadline: Duration,
    /// Where process 0 listened.
    pub(crate) address: String,
    /// The connections that were not of the run.
    pub(crate) rejections: Rejections,
    /// Digits drawn for this run.
    pub(crate) run: String,
}

impl Introductions {
    /// The introductions that process 0 collects, its own first.
    pub(crate) fn new(own: Introduction) -> Introductions {
        let present = BTreeMap::from([(own.entry.process, own.entry.clone())]);
        Introductions { own, present, problems: vec![] }
    }

    /// Notes a process.
    pub(crate) fn arrive(&mut self, other: Introduction) {
        let Introduction { entry, processes, identity } = other;
        let (name, expected) = (entry.named(), self.own.processes);
        if processes != expected {
            self.problems.push(format!(
                "{name} expects {processes} processes, and process 0 expects {expected}; start all with the same number"
            ));
        }
        self.problems.extend(differences(&name, &identity, &self.own.identity));
        if entry.process >= expected {
            self.problems.push(format!(
                "{name} is outside of a run of {expected} processes; use numbers from 0 to {}",
                expected.saturating_sub(1)
            ));
            return;
        }
        if let Some(known) = self.present.get(&entry.process) {
            let hosts = if known.host == entry.host {
                format!("both on host {}", known.host)
            } else {
                format!("on host {} and on host {}", known.host, entry.host)
            };
            self.problems.push(format!("process {} has started twice, {hosts}; start each number once", entry.process));
            return;
        }
        self.present.insert(entry.process, entry);
    }

    /// Notes a reason for which the run does not start.
    pub(crate) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Whether a reason is known for which the run does not start.
    pub(crate) fn has_problem(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Whether all processes have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.present.len() >= self.own.processes
    }

    /// The directory, or all reasons for which the run does not start.
    pub(crate) fn verdict(mut self, waited: &MissingProcesses) -> Result<Directory, Vec<String>> {
        if self.is_complete() {
            self.problems.extend(misplaced_ranks(&self.present));
        } else {
            self.problems.push(self.missing(waited));
        }
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        Ok(Directory { processes: self.present.into_values().collect(), run: waited.run.clone() })
    }

    fn missing(&self, waited: &MissingProcesses) -> String {
        let MissingProcesses { deadline, address, rejections, .. } = waited;
        let missing: Vec<usize> = (0..self.own.processes).filter(|number| !self.present.contains_key(number)).collect();
        let shown: Vec<String> = missing.iter().take(SHOWN).map(usize::to_string).collect();
        let more = if missing.len() > SHOWN { format!(" and {} more", missing.len() - SHOWN) } else { String::new() };
        let noun = if missing.len() == 1 { "process" } else { "processes" };
        let mut text = format!(
            "{noun} {}{more} of {} did not arrive at {address} within {deadline:?}; start all processes, or raise \
             run.rendezvous_seconds",
            shown.join(", "),
            self.own.processes
        );
        text += &rejections.to_string();
        text
    }
}

/// The parts in which a process differs from process 0, one sentence each.
fn differences(name: &str, theirs: &Identity, ours: &Identity) -> Vec<String> {
    let mut found = vec![];
    if theirs.binary != ours.binary {
        found.push(format!(
            "{name} runs another binary: pleach {} with hash {:016x}, and process 0 has {} with {:016x}; start all with the \
             same file",
            theirs.version, theirs.binary, ours.version, ours.binary
        ));
    }
    if theirs.run_file != ours.run_file {
        found.push(format!(
            "{name} has another run file: hash {:016x} with all options, and process 0 has {:016x}; start all with the same \
             run file and --set options",
            theirs.run_file, ours.run_file
        ));
    }
    // Another binary or run file compiles another program; one reason is enough.
    if found.is_empty() && theirs.program != ours.program {
        found.push(format!(
            "{name} compiled another program: fingerprint {:016x}, and process 0 has {:016x}; start all with the same binary \
             and run file",
            theirs.program, ours.program
        ));
    }
    match (theirs.text, ours.text) {
        (TextHash::Read(theirs), TextHash::Read(ours)) if theirs != ours => found.push(format!(
            "{name} reads another text: hash {theirs:016x}, and process 0 has {ours:016x}; give all hosts the same files \
             of [data]"
        )),
        (
            TextHash::Read(_) | TextHash::FromProcess0 | TextHash::NotNeeded,
            TextHash::Read(_) | TextHash::FromProcess0 | TextHash::NotNeeded,
        ) => {}
    }
    for (input, ours) in &ours.inputs {
        if let Some(theirs) = theirs.inputs.get(input).filter(|theirs| *theirs != ours) {
            found.push(format!(
                "{name} reads another {input}: hash {theirs:016x}, and process 0 has {ours:016x}; give all hosts the same file"
            ));
        }
    }
    found
}

/// Ranks that no process has, or two have.
fn misplaced_ranks(present: &BTreeMap<usize, ProcessEntry>) -> Vec<String> {
    let mut owners: BTreeMap<usize, &ProcessEntry> = BTreeMap::new();
    let mut found = vec![];
    for entry in present.values() {
        for rank in &entry.ranks {
            if let Some(other) = owners.insert(*rank, entry) {
                found.push(format!(
                    "rank {rank} is in {} and in {}; give all processes the same hosts",
                    other.named(),
                    entry.named()
                ));
            }
        }
    }
    let missing = (0..owners.len()).find(|rank| !owners.contains_key(rank));
    found.extend(missing.map(|rank| format!("rank {rank} is in no process; give all processes the same hosts")));
    found
}
