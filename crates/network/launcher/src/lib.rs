//! Who started this process, as which of several, and on which hosts the ranks of a run are.
//!
//! Launchers say so in environment variables. This crate reads them through a function of the caller, and does no I/O.

#![forbid(unsafe_code)]

mod address;
mod error;
mod host_list;
mod launch;
mod node_list;
mod rank_placement;
mod sources;

pub use address::{Address, AddressError};
pub use error::LaunchError;
pub use host_list::{Host, HostListError, parse_host_list};
pub use launch::{Launch, Launcher, launch};
pub use node_list::{NodeListError, expand_node_list, expand_tasks_per_node};
pub use rank_placement::{CrossingGroup, RankPlacement, RankPlacementError};

/// Environment variables by name.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Names of the variables that pleach reads and sets; `PLEACH_MPI_LIBRARY` is in crate `mpi`. Documented in
/// `docs/environment.md`.
pub mod variable {
    /// Number of this process, from 0.
    pub const PROCESS: &str = "PLEACH_PROCESS";
    /// Number of processes.
    pub const PROCESSES: &str = "PLEACH_PROCESSES";
    /// Number of this process among those of its host, from 0.
    pub const LOCAL_PROCESS: &str = "PLEACH_LOCAL_PROCESS";
    /// Name of this host.
    pub const HOST: &str = "PLEACH_HOST";
    /// `HOST:PORT` where process 0 listens and all others connect.
    pub const RENDEZVOUS: &str = "PLEACH_RENDEZVOUS";
    /// Secret of the run: 64 hexadecimal digits.
    pub const TOKEN: &str = "PLEACH_TOKEN";
    /// File that holds the secret.
    pub const TOKEN_FILE: &str = "PLEACH_TOKEN_FILE";
    /// Secret of the user, by which run files are known as the user's own: 64 hexadecimal digits.
    pub const SECRET: &str = "PLEACH_SECRET";
    /// Hosts of the run in the form of a host file, entries separated by commas.
    pub const HOSTS: &str = "PLEACH_HOSTS";
    /// Number that all processes of one start on one machine share, and those of another start do not.
    pub const JOB: &str = "PLEACH_JOB";
    /// Process id of the `pleach launch` that started this process.
    pub const PARENT: &str = "PLEACH_PARENT";
    /// Folders with NVIDIA's libraries, like `PATH`.
    pub const CUDA: &str = "PLEACH_CUDA";
    /// The text of `run.notify`, for the shell that runs it; the command does not see it.
    pub const COMMAND: &str = "PLEACH_COMMAND";
    /// For the command of `run.notify`: the event.
    pub const EVENT: &str = "PLEACH_EVENT";
    /// For the same: the run's folder.
    pub const RUN: &str = "PLEACH_RUN";
    /// For the same: the last step.
    pub const STEP: &str = "PLEACH_STEP";
    /// For the same: a sentence.
    pub const MESSAGE: &str = "PLEACH_MESSAGE";
}

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as launcher;
#[cfg(test)]
mod tests;
