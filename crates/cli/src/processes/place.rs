//! The place that a launcher gave this process: its number and its ranks.

use config::{EngineChoice, RunConfig};
use launcher::{Address, Host, Launch, RankPlacement, launch};
use mesh::{Mesh, PlacementOrder, Rank};

use crate::failure::Failure;

/// One of several processes.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its number.
    pub process: usize,
    /// Number of processes.
    pub processes: usize,
    /// Name of its host.
    pub host: String,
    /// Its ranks, ascending.
    pub ranks: Vec<Rank>,
    /// Where process 0 listens.
    pub rendezvous: Option<Address>,
}

impl Place {
    /// The place in a run on `mesh` that `launch` gives this process, where ranks fill hosts in the given `order`.
    ///
    /// # Errors
    /// A number of processes that does not divide the ranks.
    pub fn of_launch(launch: Launch, mesh: &Mesh, order: PlacementOrder) -> Result<Place, Failure> {
        let Launch { launcher, process, processes, host, rendezvous, hosts, .. } = launch;
        let host = host.unwrap_or_else(own_host);
        // Ranks follow from the numbers of processes alone, so one host stands for all where the launcher names none.
        let hosts = hosts.unwrap_or_else(|| vec![Host { name: host.clone(), processes }]);
        let placement =
            RankPlacement::new(mesh, &hosts, order).map_err(|error| Failure::Input(format!("{launcher}: {error}")))?;
        let mut ranks = placement.ranks_of(process).to_vec();
        ranks.sort_unstable();
        Ok(Place { process, processes, host, ranks, rendezvous })
    }
}

/// The launch of this process, if it is one of several and `config` does not keep all ranks in one process.
///
/// # Errors
/// Variables of a launcher that contradict each other, and `run.engine = "processes"` without a launcher.
pub fn launch_of_several(config: &RunConfig) -> Result<Option<Launch>, Failure> {
    if config.run.engine == EngineChoice::Threads {
        return Ok(None);
    }
    let found = launch(&|name: &str| std::env::var(name).ok());
    let found = found.map_err(|error| Failure::Input(error.to_string()))?;
    match (found, config.run.engine) {
        (Some(launch), _) => Ok(Some(launch).filter(|launch| launch.processes > 1)),
        (None, EngineChoice::Auto | EngineChoice::Threads) => Ok(None),
        (None, EngineChoice::Processes) => Err(Failure::Input(format!(
            "run.engine = \"processes\" needs a launcher, and none started this process; use `pleach launch --nproc {} -- train ...`, or \
             run.engine = \"auto\"",
            config.parallelism.world_size()
        ))),
    }
}

/// The name of this host.
pub fn own_host() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    "this host".into()
}
