//! Why the variables of launchers cannot be used.

use crate::address::AddressError;
use crate::host_list::HostListError;
use crate::launch::Launcher;
use crate::node_list::NodeListError;

/// See the variants. Each names the variables and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A launcher that gives less than a process needs.
    #[error("{launcher} started this process, but {variable} is missing; {remedy}")]
    Missing {
        /// Which launcher.
        launcher: Launcher,
        /// The variable.
        variable: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// A variable that is not a number.
    #[error("{variable} = {value:?} must be a whole number; {launcher} started this process")]
    NotANumber {
        /// Which launcher.
        launcher: Launcher,
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A process outside of its run.
    #[error(
        "{number} = {process} must be less than {count} = {processes}; processes are counted from 0 \
         ({launcher} started this process)"
    )]
    Outside {
        /// Which launcher.
        launcher: Launcher,
        /// Variable of the process.
        number: &'static str,
        /// Its value.
        process: usize,
        /// Variable of the count.
        count: &'static str,
        /// Its value.
        processes: usize,
    },
    /// Two launchers that name different runs.
    #[error(
        "{first} says process {process} of {processes}, but {second} says process {other_process} of {other_processes}; unset \
         the variables of the launcher that did not start this process"
    )]
    Disagree {
        /// The launcher that counts.
        first: Launcher,
        /// Its number for this process.
        process: usize,
        /// Its number of processes.
        processes: usize,
        /// The other launcher.
        second: Launcher,
        /// Its number for this process.
        other_process: usize,
        /// Its number of processes.
        other_processes: usize,
    },
    /// Several processes without a place to meet.
    #[error(
        "{launcher} started this process as {process} of {processes}, but no address is known where process 0 listens; set \
         PLEACH_RENDEZVOUS=HOST:PORT, or MASTER_ADDR and MASTER_PORT, for all processes"
    )]
    NoAddress {
        /// Which launcher.
        launcher: Launcher,
        /// This process.
        process: usize,
        /// All processes.
        processes: usize,
    },
    /// A variable with an address that is not one.
    #[error("{variable}: {error}")]
    Address {
        /// The variable.
        variable: &'static str,
        /// The reason.
        error: AddressError,
    },
    /// A list of hosts that is not one.
    #[error(
        "PLEACH_HOSTS = {list:?}: {error}; use entries with commas between, such as node0:4,node1:4, or unset PLEACH_HOSTS"
    )]
    Hosts {
        /// Its value.
        list: String,
        /// The reason; entries count as lines.
        error: HostListError,
    },
    /// A node list that cannot be expanded.
    #[error("{variable}: {error}")]
    NodeList {
        /// The variable.
        variable: &'static str,
        /// The reason.
        error: NodeListError,
    },
}
