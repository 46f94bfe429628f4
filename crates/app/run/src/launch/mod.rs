//! `pleach launch`: the processes of a run, here and on other hosts.

pub mod agent;
mod failure_report;
pub mod guard;
mod job;
mod launch_hosts;
mod leftovers;
mod lines;
mod other_launcher;
pub mod parent;
mod probe;
mod restart;
mod signals;
pub mod spec;
mod supervisor;

use std::path::Path;

use config::figures::counted;
use config::shown_words;
use launcher::{Host, RankPlacement, launch as launch_of, variable};

use crate::failure::Failure;
use crate::launch::failure_report::{Watched, Without};
use crate::launch::guard::Guard;
use crate::launch::job::Job;
use crate::launch::launch_hosts::{Change, LaunchHosts};
use crate::launch::lines::LastLines;
use crate::launch::other_launcher::OtherLauncher;
use crate::launch::probe::ReturnWatch;
use crate::launch::restart::{Progress, Restart};
use crate::launch::signals::Signals;
use crate::launch::spec::LaunchSpec;
use crate::launch::supervisor::{Outcome, Supervised, supervise};
use crate::messages::stderr::tell;
use crate::places::author::{confirmed, of_all_starts};
use crate::process_group::descriptors;
use crate::process_group::host_file::read_hosts;
use crate::process_group::place::own_host;
use crate::signals::interrupt::survive_hangups;
use crate::watch::{has_finished_after, status_of};

/// The commands and variables of all processes, as [`launch`] starts them.
///
/// # Errors
/// Input that cannot be used.
pub fn shown(spec: &LaunchSpec) -> Result<String, Failure> {
    refuse_other_launchers()?;
    if let Some(other) = OtherLauncher::of(spec)? {
        return other.restart().map(|_| format!("{}\n", other.shown()));
    }
    let hosts = hosts(spec)?;
    checked(spec, &hosts)?;
    Ok(Job::new(spec, &hosts, spec.command.clone(), &of_all_starts()?)?.shown())
}

/// Starts the processes and supervises them to their end.
///
/// # Errors
/// Input that cannot be used, before a process is started; the first failure of a process.
pub fn launch(spec: &LaunchSpec) -> Result<(), Failure> {
    refuse_other_launchers()?;
    if let Some(other) = OtherLauncher::of(spec)? {
        return launch_other(spec, other);
    }
    let hosts = hosts(spec)?;
    let restart = checked(spec, &hosts)?;
    let secret = of_all_starts()?;
    let signals = Signals::listen()?;
    survive_hangups()?;
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::Work(format!("the path of pleach is not known: {error}")))?;
    warn_of_author(&restart)?;
    let mut guard = None;
    let (mut command, status) = (spec.command.clone(), restart.folder().map_or(String::new(), status_of));
    let mut budget = Budget { restart: &restart, left: spec.restarts, before: restart.progress(), status };
    let mut launch_hosts = LaunchHosts::new(spec, &hosts, &restart)?;
    tell(&launch_hosts.warning(spec).unwrap_or_default());
    loop {
        let job = Job::new(spec, launch_hosts.hosts(), command, &secret)?;
        let members = job.members()?;
        descriptors::check_launcher(members.len())?;
        if guard.is_none() {
            guard = Some(Guard::start(&program)?);
        }
        let watched = Watched::begin(&spec.command, spec.language, Path::new(""), &own_host());
        let mut returns = launch_hosts.return_watch()?;
        let orders = || returns.as_mut().and_then(ReturnWatch::order).or_else(|| signals.next());
        let supervised = supervise(members, guard.as_ref(), orders)?;
        watched.report(&supervised, Without::Begins(supervised.ends.len()));
        let message = match &supervised.outcome {
            Outcome::Stopped { .. } if returns.is_some_and(|watch| watch.has_ordered()) && signals.last().is_none() => {
                budget.before = restart.progress();
                launch_hosts.complete()
            }
            Outcome::Done | Outcome::Stopped { .. } | Outcome::Failed { .. } => {
                let change = launch_hosts.after(&supervised.outcome, restart.progress(), budget.left, &signals)?;
                let Some(message) = budget.after(supervised.outcome, change, &signals)? else { return Ok(()) };
                message
            }
        };
        command = launch_hosts.command(restart.command(&spec.command));
        let left = counted(u64::from(budget.left), "restart");
        tell(&format!("{message}; restarting: pleach {}; {left} left\n", shown_words(&command).join(" ")));
    }
}

/// Starts a command that starts the processes itself, and starts all of it again after a failure.
fn launch_other(spec: &LaunchSpec, first: OtherLauncher) -> Result<(), Failure> {
    let restart = first.restart()?;
    let (signals, last_lines, secret) = (Signals::listen()?, LastLines::default(), of_all_starts()?);
    survive_hangups()?;
    warn_of_author(&restart)?;
    leftovers::adopt();
    let status = restart.folder().map_or(String::new(), status_of);
    let mut budget = Budget { restart: &restart, left: spec.restarts, before: restart.progress(), status };
    let mut next = first.again(&Restart::Same);
    loop {
        let watched = Watched::begin(&first.command_of_pleach(), spec.language, Path::new(""), &own_host());
        let supervised = supervise(vec![next.member(&last_lines, &secret)], None, || signals.next())?;
        let left_over = leftovers::end();
        if left_over > 0 {
            tell(&format!("{left_over} processes of {} were left, and were ended\n", next.shown()));
        }
        // Leftovers hold the standard error open.
        let outcome = with_last_lines(supervised.outcome, &last_lines.take());
        let supervised = Supervised { outcome, ..supervised };
        watched.report(&supervised, Without::Nothing);
        let Some(message) = budget.after(supervised.outcome, Change::None, &signals)? else {
            return Ok(());
        };
        next = first.again(&restart);
        let left = counted(u64::from(budget.left), "restart");
        tell(&format!("{message}; restarting: {}; {left} left\n", next.shown()));
    }
}

/// Says that a user without a secret has to set keys again who resumes the run by hand: all processes have a secret.
fn warn_of_author(restart: &Restart) -> Result<(), Failure> {
    let warning = restart.config()?.and_then(|config| confirmed(&config).warning);
    tell(&warning.unwrap_or_default());
    Ok(())
}

/// A failure of a single program, with what it printed last.
fn with_last_lines(outcome: Outcome, last_lines: &[String]) -> Outcome {
    match outcome {
        Outcome::Failed { code, message } => {
            let message = message.replace(", and all others were ended", "");
            let said = if last_lines.is_empty() { "nothing".into() } else { last_lines.join(" | ") };
            Outcome::Failed { code, message: format!("{message}; its last output: {said}") }
        }
        outcome @ (Outcome::Done | Outcome::Stopped { .. }) => outcome,
    }
}

/// Starts that are left.
struct Budget<'a> {
    restart: &'a Restart,
    left: u32,
    /// Where the run was at the last start.
    before: Progress,
    /// The status of the run before the first start.
    status: String,
}

impl Budget<'_> {
    /// The message for the next start; none where everything is done.
    ///
    /// # Errors
    /// An end after which nothing is started again.
    fn after(&mut self, outcome: Outcome, change: Change, signals: &Signals) -> Result<Option<String>, Failure> {
        let (code, message) = match outcome {
            Outcome::Done => return Ok(None),
            Outcome::Stopped { code, message } => return Err(Failure::Process { code, message }),
            Outcome::Failed { code, message } => (code, message),
        };
        let failed = |code, message| Err(Failure::Process { code, message });
        let change = match change {
            Change::None => None,
            Change::Hosts(change) => Some(change),
            Change::Stop(reason) => return failed(code, format!("{message}; {reason}")),
        };
        if self.restart.folder().is_some_and(|folder| has_finished_after(folder, &self.status)) {
            return failed(code, format!("{message}; all steps were done and written before, so there is no restart"));
        }
        if self.left == 0 || !Restart::helps(code) {
            return failed(code, message);
        }
        if let Some(signal) = signals.last() {
            let message = format!("{message}; no restart after signal {signal}");
            return failed(u8::try_from(128 + signal).unwrap_or(Failure::WORK), message);
        }
        let now = self.restart.progress();
        // Other hosts are another start than the last.
        if change.is_none() && !now.is_made_since(self.before) {
            let message = format!(
                "{message}; {now}, as at its start, so there is no restart: find the cause, or use a smaller \
                 run.save_every"
            );
            return failed(code, message);
        }
        (self.before, self.left) = (now, self.left - 1);
        Ok(Some(change.map_or(message.clone(), |change| format!("{message}; {change}"))))
    }
}

/// Within several processes of another launcher each would start a run of its own.
fn refuse_other_launchers() -> Result<(), Failure> {
    let other = launch_of(&|name: &str| std::env::var(name).ok()).map_err(|error| Failure::Input(error.to_string()))?;
    match other {
        Some(launch) if launch.processes > 1 => Err(Failure::Input(format!(
            "pleach launch is itself one of several processes ({launch}); start it once, or leave it out and start the command \
             itself with {}",
            launch.launcher
        ))),
        Some(_) | None => Ok(()),
    }
}

fn hosts(spec: &LaunchSpec) -> Result<Vec<Host>, Failure> {
    let processes = spec.processes;
    match &spec.hosts {
        Some(path) => read_hosts(path, processes),
        None => Ok(vec![Host { name: "localhost".into(), processes }]),
    }
}

/// Refuses a command that cannot run before it is started many times.
fn checked(spec: &LaunchSpec, hosts: &[Host]) -> Result<Restart, Failure> {
    let restart = Restart::of(&spec.command, spec.language)?;
    if let Restart::Training { train, .. } = &restart {
        let config = train.spec.run.load()?;
        let mesh = config.parallelism.mesh().map_err(|error| Failure::Input(error.to_string()))?;
        let placement = RankPlacement::new(&mesh, hosts, config.run.placement);
        placement.map_err(|error| Failure::Input(format!("--nproc or --hosts: {error}")))?;
    }
    Ok(restart)
}

/// Variables that a process of a launch must not have from elsewhere.
const OWN_VARIABLES: [&str; 10] = [
    variable::PROCESS,
    variable::PROCESSES,
    variable::LOCAL_PROCESS,
    variable::HOST,
    variable::RENDEZVOUS,
    variable::TOKEN,
    variable::TOKEN_FILE,
    variable::SECRET,
    variable::HOSTS,
    variable::PARENT,
];
