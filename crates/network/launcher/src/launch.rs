//! The launcher that counts, and the place that it gives this process.

use std::fmt;

use crate::Environment;
use crate::address::Address;
use crate::error::LaunchError;
use crate::host_list::Host;
use crate::sources::{self, Offer, offers};

/// Programs that start several processes. Where one starts another, the inner one is earlier here and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `pleach launch`, or variables set by hand: `PLEACH_PROCESS`, `PLEACH_PROCESSES`.
    Pleach,
    /// `torchrun`, or an operator that sets `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives, or Slurm's PMI.
    Mpich,
    /// Another server of PMIx, which gives no number of processes.
    Pmix,
    /// `srun`: a step of several tasks.
    Slurm,
    /// An indexed Job of Kubernetes.
    Kubernetes,
}

impl Launcher {
    /// All launchers, in the order in which they count.
    pub const ALL: [Launcher; 7] = [
        Launcher::Pleach,
        Launcher::Torchrun,
        Launcher::OpenMpi,
        Launcher::Mpich,
        Launcher::Pmix,
        Launcher::Slurm,
        Launcher::Kubernetes,
    ];

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Launcher::Pleach => "pleach launch",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Mpich => "MPICH",
            Launcher::Pmix => "PMIx",
            Launcher::Slurm => "Slurm",
            Launcher::Kubernetes => "Kubernetes",
        }
    }

    /// How to start `pleach train` in `processes` processes, for messages.
    pub fn command(self, processes: usize) -> String {
        match self {
            Launcher::Pleach => format!("pleach launch --nproc {processes} -- train ..."),
            Launcher::Torchrun => format!("torchrun --nproc-per-node {processes} --no-python pleach train ..."),
            Launcher::OpenMpi | Launcher::Mpich | Launcher::Pmix => {
                format!("mpiexec -n {processes} pleach train ...")
            }
            Launcher::Slurm => format!("srun --ntasks {processes} pleach train ..."),
            Launcher::Kubernetes => format!("spec.completions: {processes}"),
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of this process among those of its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher that counts.
    pub launcher: Launcher,
    /// Number of this process, below `processes`.
    pub process: usize,
    /// Number of processes, from 1.
    pub processes: usize,
    /// Number of this process among those of its host.
    pub local_process: Option<usize>,
    /// Name of this host, where the launcher gives it.
    pub host: Option<String>,
    /// Where process 0 listens; `None` for a launch of one process only.
    pub rendezvous: Option<Address>,
    /// All hosts with their processes, where the launcher gives them.
    pub hosts: Option<Vec<Host>>,
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: process {} of {}", self.launcher, self.process, self.processes)
    }
}

/// The launch that started this process; `None` where no launcher did, and for a batch script or a shell within an
/// allocation.
///
/// # Errors
/// Missing or contradicting variables; see [`LaunchError`].
pub fn launch(environment: Environment<'_>) -> Result<Option<Launch>, LaunchError> {
    let offers = offers(environment)?;
    let Some((first, others)) = offers.split_first() else { return Ok(None) };
    for other in others {
        agree(first, other)?;
    }
    // A step of Slurm that sets variables of PMI is one place with two sets of variables.
    let same: Vec<&Offer> = offers.iter().filter(|offer| offer.is_same_place(first)).collect();
    let mut hosts = None;
    for offer in &same {
        hosts = hosts.or(sources::hosts(environment, offer.launcher)?);
    }
    let Offer { launcher, process, processes, .. } = *first;
    Ok(Some(Launch {
        launcher,
        process,
        processes,
        local_process: same.iter().find_map(|offer| offer.local_process),
        host: same.iter().find_map(|offer| offer.host.clone()),
        rendezvous: if processes == 1 { None } else { Some(address(environment, &same)?) },
        hosts,
    }))
}

/// Where process 0 listens, as the first of `offers` says that does.
fn address(environment: Environment<'_>, offers: &[&Offer]) -> Result<Address, LaunchError> {
    for offer in offers {
        if let Some(address) = sources::rendezvous(environment, offer)? {
            return Ok(address);
        }
    }
    let Offer { launcher, process, processes, .. } = *offers[0];
    Err(LaunchError::NoAddress { launcher, process, processes })
}

/// Whether both name the same place, or `outer` may have started the launcher of `inner`: a launcher that starts
/// another one has fewer processes, an agent of `torchrun` or a daemon of MPI for each host.
fn agree(inner: &Offer, outer: &Offer) -> Result<(), LaunchError> {
    let is_started_by = match inner.agents {
        _ if outer.processes == 1 => true,
        Some(agents) => agents == outer.processes,
        None => outer.processes < inner.processes,
    };
    if is_started_by || inner.is_same_place(outer) {
        return Ok(());
    }
    Err(LaunchError::Disagree {
        first: inner.launcher,
        process: inner.process,
        processes: inner.processes,
        second: outer.launcher,
        other_process: outer.process,
        other_processes: outer.processes,
    })
}
