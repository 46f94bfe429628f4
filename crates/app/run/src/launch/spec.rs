//! The processes of a launch, and the meaning of the words of its command.

use std::path::PathBuf;

use launcher::Address;

use crate::failure::Failure;
use crate::spec::TrainSpec;

/// Processes that a user asks for.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// Number of processes; with `hosts`, on each host without a number in the file.
    pub processes: usize,
    /// The file of hosts; process 0 is on the first. All processes are on this host without one.
    pub hosts: Option<PathBuf>,
    /// Most restarts after a failure.
    pub restarts: u32,
    /// Where process 0 listens.
    pub rendezvous: Option<Address>,
    /// Starts a command on another host.
    pub ssh: String,
    /// The path of pleach on other hosts, where it is not that on this one.
    pub program: Option<PathBuf>,
    /// Words after the name of pleach; or those of another launcher.
    pub command: Vec<String>,
    /// Whose words they are.
    pub language: Language,
}

/// The commands of the program that is started.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// The training that these words after the name of the program start; nothing for another command. Words that the
    /// program does not know are an error.
    pub training: fn(&[String]) -> Result<Option<Training>, Failure>,
    /// Whether a command has this name.
    pub has_command: fn(&str) -> bool,
}

/// A command that trains.
#[derive(Clone, Debug)]
pub struct Training {
    pub spec: TrainSpec,
    /// Options about what it prints, which a resumption has, too.
    pub printing: Vec<String>,
}
