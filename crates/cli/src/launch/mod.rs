//! `pleach launch`: the processes of a run, here and on other hosts.

pub mod agent;
pub mod guard;
mod job;
mod lines;
pub mod parent;
mod restart;
mod signals;
mod supervisor;

use clap::Parser;
use launcher::{Host, RankPlacement, launch as launch_of, variable};

use crate::arguments::launch::LaunchArguments;
use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use crate::input;
use crate::launch::guard::Guard;
use crate::launch::job::Job;
use crate::launch::restart::Restart;
use crate::launch::signals::Signals;
use crate::launch::supervisor::{Outcome, supervise};
use crate::processes::descriptors;
use crate::rank_hosts::read_hosts;
use crate::screen::output::{print, tell};

/// Starts the processes and supervises them to their end.
///
/// # Errors
/// Input that cannot be used, before a process is started; the first failure of a process.
pub fn launch(arguments: &LaunchArguments) -> Result<(), Failure> {
    refuse_other_launchers()?;
    let hosts = hosts(arguments)?;
    let restart = checked(arguments, &hosts)?;
    if arguments.dry_run {
        return print(&Job::new(arguments, &hosts, arguments.command.clone())?.shown());
    }
    let signals = Signals::listen()?;
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::Work(format!("the path of pleach is not known: {error}")))?;
    let mut guard = None;
    let mut left = arguments.restarts;
    let mut command = arguments.command.clone();
    loop {
        let job = Job::new(arguments, &hosts, command)?;
        let members = job.members()?;
        descriptors::check_launcher(members.len())?;
        if guard.is_none() {
            guard = Some(Guard::start(&program)?);
        }
        let outcome = supervise(members, guard.as_ref(), || signals.next())?;
        match (outcome, signals.last()) {
            (Outcome::Done, _) => return Ok(()),
            (Outcome::Stopped { code, message }, _) => return Err(Failure::Process { code, message }),
            (Outcome::Failed { message, .. }, Some(signal)) if left > 0 => {
                let message = format!("{message}; signal {signal} came, so nothing is started again");
                return Err(Failure::Process { code: u8::try_from(128 + signal).unwrap_or(Failure::WORK), message });
            }
            (Outcome::Failed { code, message }, _) if left == 0 || !Restart::helps(code) => {
                return Err(Failure::Process { code, message });
            }
            (Outcome::Failed { message, .. }, _) => {
                left -= 1;
                command = restart.command(&arguments.command);
                tell(&format!("{message}; starting again: pleach {}; {left} restarts left\n", command.join(" ")));
            }
        }
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

fn hosts(arguments: &LaunchArguments) -> Result<Vec<Host>, Failure> {
    let processes = arguments.nproc as usize;
    match &arguments.hosts {
        Some(path) => read_hosts(path, processes),
        None => Ok(vec![Host { name: "localhost".into(), processes }]),
    }
}

/// Refuses a command that cannot run before it is started many times.
fn checked(arguments: &LaunchArguments, hosts: &[Host]) -> Result<Restart, Failure> {
    let words = std::iter::once("pleach").chain(arguments.command.iter().map(String::as_str));
    let parsed = Arguments::try_parse_from(words).map_err(|error| Failure::Input(error.to_string()))?;
    let Command::Train(train) = parsed.command else { return Ok(Restart::Same) };
    if train.resume.is_some() || train.from.is_some() {
        return Ok(Restart::Same);
    }
    let config = input::load(&train.run)?;
    let mesh = config.parallelism.mesh().map_err(|error| Failure::Input(error.to_string()))?;
    let placement = RankPlacement::new(&mesh, hosts, config.run.placement);
    placement.map_err(|error| Failure::Input(format!("--nproc or --hosts: {error}")))?;
    Ok(Restart::Training { folder: config.run.folder, train })
}

/// Variables that a process of a launch must not have from elsewhere.
const OWN_VARIABLES: [&str; 9] = [
    variable::PROCESS,
    variable::PROCESSES,
    variable::LOCAL_PROCESS,
    variable::HOST,
    variable::RENDEZVOUS,
    variable::TOKEN,
    variable::TOKEN_FILE,
    variable::HOSTS,
    variable::PARENT,
];
