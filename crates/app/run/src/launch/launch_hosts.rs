//! The hosts that take part in a run, and what is done when some of them do not answer any more.

use std::path::PathBuf;

use config::{OnLoss, RunConfig};
use launcher::Host;
use sync::NoThread;

use crate::failure::Failure;
use crate::launch::job::Shell;
use crate::launch::probe::{PAUSE, ReturnWatch, silent};
use crate::launch::restart::{Progress, Restart};
use crate::launch::signals::Signals;
use crate::launch::spec::LaunchSpec;
use crate::launch::supervisor::Outcome;
use crate::layout::replan::{Replanned, comparing_profile, layout_keys, replan, with_most_replicas};
use crate::layout::unwatched_hosts::{HostWatch, warning};
use crate::messages::stderr::tell;

/// The hosts of a launch, with the layout that they run.
pub struct LaunchHosts {
    shell: Shell,
    /// Those that were given.
    all: Vec<Host>,
    /// Those that take part.
    now: Vec<Host>,
    /// Those that did not answer.
    lost: Vec<Host>,
    /// The run as it was given; `None` where the command trains none.
    whole: Option<RunConfig>,
    /// The run as it is replanned for those that take part.
    replanned: Option<RunConfig>,
    /// The settings of the layout that runs, once another one was taken.
    keys: Vec<String>,
    /// The folder of the run and the file of hosts, for messages.
    folder: Option<PathBuf>,
    hosts_file: Option<PathBuf>,
}

/// The hosts of a run after a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// All answer.
    None,
    /// The next start is another one than the last.
    Hosts(String),
    /// The run ends, for this reason.
    Stop(String),
}

impl LaunchHosts {
    /// All `hosts`, which run what `restart` starts.
    ///
    /// # Errors
    /// A run file that cannot be read; an empty program for other hosts.
    pub fn new(spec: &LaunchSpec, hosts: &[Host], restart: &Restart) -> Result<LaunchHosts, Failure> {
        Ok(LaunchHosts {
            shell: Shell::new(spec)?,
            all: hosts.to_vec(),
            now: hosts.to_vec(),
            lost: vec![],
            whole: restart.config()?,
            replanned: None,
            keys: vec![],
            folder: restart.folder().map(PathBuf::from),
            hosts_file: spec.hosts.clone(),
        })
    }

    /// A warning of a `run.on_loss` that has no effect with this `spec`.
    pub fn warning(&self, spec: &LaunchSpec) -> Option<String> {
        let restarts = spec.restarts;
        let watch = spec.hosts.as_ref().map_or(HostWatch::OneHost, |_| HostWatch::Launch { restarts });
        warning(self.whole.as_ref()?.run.on_loss, watch)
    }

    /// The hosts that take part.
    pub fn hosts(&self) -> &[Host] {
        &self.now
    }

    /// `command`, with the layout that these hosts run.
    pub fn command(&self, command: Vec<String>) -> Vec<String> {
        let keys = self.keys.iter().flat_map(|key| ["--set".to_string(), key.clone()]);
        command.into_iter().chain(keys).collect()
    }

    /// Waits for hosts that do not take part.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn return_watch(&self) -> Result<Option<ReturnWatch>, NoThread> {
        (!self.lost.is_empty()).then(|| ReturnWatch::start(&self.shell, &self.lost)).transpose()
    }

    /// All hosts take part again, in the layout that was given. Returns a message.
    pub fn complete(&mut self) -> String {
        let names = named(&std::mem::take(&mut self.lost));
        self.now.clone_from(&self.all);
        let mut message = format!("{names} answers again; the run resumes in all processes");
        if let (Some(whole), Some(replanned)) = (&self.whole, self.replanned.take()) {
            self.keys = layout_keys(&replanned, whole);
            message += &format!(", with {}", self.keys.join(", "));
        }
        message
    }

    /// Asks the hosts after a failure whether they are there, and does what `run.on_loss` says. Nothing is waited for
    /// or replanned where no `restarts` are left.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn after(
        &mut self,
        outcome: &Outcome,
        progress: Progress,
        restarts: u32,
        signals: &Signals,
    ) -> Result<Change, NoThread> {
        let Some(whole) =
            self.whole.clone().filter(|_| matches!(outcome, Outcome::Failed { code, .. } if Restart::helps(*code)))
        else {
            return Ok(Change::None);
        };
        let missing = silent(&self.shell, &self.now)?;
        if missing.is_empty() {
            return Ok(Change::None);
        }
        let names = named(&missing);
        Ok(match (whole.run.on_loss, restarts) {
            (OnLoss::Stop, _) | (OnLoss::Wait | OnLoss::Replan, 0) => {
                if progress == Progress::Nothing {
                    // There is nothing to resume, and the failure names the host that did not start.
                    return Ok(Change::None);
                }
                Change::Stop(format!("{names} does not answer{}", self.remedy(&whole, &missing)))
            }
            (OnLoss::Wait, _) => {
                tell(&format!("{names} does not answer; waiting, as run.on_loss = \"wait\" says\n"));
                while signals.last().is_none() && !silent(&self.shell, &missing)?.is_empty() {
                    std::thread::sleep(PAUSE);
                }
                Change::Hosts(format!("{names} answers again"))
            }
            (OnLoss::Replan, _) => {
                let lost = silent(&self.shell, &self.all)?;
                if lost.is_empty() {
                    self.lost = missing;
                    return Ok(Change::Hosts(self.complete()));
                }
                match self.without(&whole, &lost) {
                    Ok(replanned) => Change::Hosts(self.take(&whole, lost, replanned, progress)),
                    Err(failure) => Change::Stop(format!("{names} does not answer; {failure}")),
                }
            }
        })
    }

    fn without(&self, whole: &RunConfig, lost: &[Host]) -> Result<Replanned, Failure> {
        let left: Vec<Host> = self.all.iter().filter(|host| !lost.contains(host)).cloned().collect();
        replan(whole, processes(&self.all), &left, || comparing_profile(whole))
    }

    /// From now on the run is `replanned`. Returns a message with its cost.
    fn take(&mut self, whole: &RunConfig, lost: Vec<Host>, replanned: Replanned, progress: Progress) -> String {
        let Replanned { config, hosts, slower } = replanned;
        let keys = layout_keys(whole, &config);
        let slower = slower.map_or(String::new(), |slower| format!("; a step has {slower:.2} times the work"));
        let message = format!(
            "{} does not answer; replanned for {} of {} processes with {}{slower}, and {}",
            named(&lost),
            processes(&hosts),
            processes(&self.all),
            keys.join(", "),
            match progress {
                Progress::Steps(steps) => format!("steps after step {steps} are repeated"),
                Progress::Nothing | Progress::Unknown => "all steps are repeated".into(),
            }
        );
        (self.now, self.lost, self.keys, self.replanned) = (hosts, lost, keys, Some(config));
        message
    }

    /// The command that resumes the run without the hosts that are `missing`, in words that follow the reason.
    fn remedy(&self, whole: &RunConfig, missing: &[Host]) -> String {
        let left: Vec<Host> = self.now.iter().filter(|host| !missing.contains(host)).cloned().collect();
        let layout = with_most_replicas(whole, processes(&self.all), &left);
        let (Some((_, after)), Some(folder)) = (layout, &self.folder) else { return String::new() };
        let file = self.hosts_file.as_ref().map_or("HOSTS".into(), |file| file.display().to_string());
        let keys = layout_keys(whole, &after);
        let keys: String = keys.iter().map(|key| format!(" --set {key}")).collect();
        format!(
            "; to resume on the others, remove it from {file} and use `pleach launch --hosts {file} -- train --resume {}{keys}`, or \
             run.on_loss = \"replan\"",
            folder.display()
        )
    }
}

fn processes(hosts: &[Host]) -> usize {
    hosts.iter().map(|host| host.processes).sum()
}

fn named(hosts: &[Host]) -> String {
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let each = if names.len() == 1 { "host" } else { "each of hosts" };
    format!("{each} {}", names.join(", "))
}
