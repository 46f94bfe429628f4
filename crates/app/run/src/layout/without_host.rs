//! The command that resumes a run without a host that is lost, for launchers that start nothing again in another
//! layout.

use std::collections::BTreeSet;

use blame::CauseKind;
use config::RunConfig;
use launcher::{Host, variable};

use crate::layout::replan::{layout_keys, with_most_replicas};
use crate::places::newest_checkpoint::newest_checkpoint;
use crate::process_group::member::GroupMember;

/// A sentence with the command, from the first process that is left. Nothing where the failure is not that of a process
/// on another host, where no layout with fewer replicas is legal, and under `pleach launch`, which asks the host
/// itself.
pub fn advice(config: &RunConfig, member: &GroupMember) -> Option<String> {
    if std::env::var_os(variable::PARENT).is_some() {
        return None;
    }
    let failure = member.control.failure()?;
    let directory = member.control.directory();
    let (kind, _) = CauseKind::of_text(&failure.report.cause);
    let is_of_process = [CauseKind::Vanished, CauseKind::Silent, CauseKind::Network].contains(&kind);
    let process = failure.report.rank.and_then(|rank| directory.process_of(rank));
    let lost = process.map_or(failure.host.as_str(), |process| process.host.as_str());
    let left: Vec<_> = directory.processes.iter().filter(|process| process.host != lost).collect();
    if !is_of_process || left.first()?.process != member.place.process {
        return None;
    }
    let names: BTreeSet<&str> = left.iter().map(|process| process.host.as_str()).collect();
    let host = |name: &&str| Host {
        name: (*name).into(),
        processes: left.iter().filter(|process| process.host == **name).count(),
    };
    let hosts: Vec<Host> = names.iter().map(host).collect();
    let (count, after) = with_most_replicas(config, directory.processes.len(), &hosts)?;
    let keys: String = layout_keys(config, &after).iter().map(|key| format!(" --set {key}")).collect();
    let folder = config.run.folder.display();
    let resume = format!("train --resume {folder}{keys}");
    let command = member.place.launcher().command(count);
    let command = match command.split_once("train ...") {
        Some((start, _)) => format!("{start}{resume}"),
        None => format!("{command}, pleach {resume}"),
    };
    let after = newest_checkpoint(&config.run.folder).map_or(String::new(), |steps| format!(" after step {steps}"));
    Some(format!("if host {lost} does not come back: `{command}` resumes{after} without it\n"))
}
