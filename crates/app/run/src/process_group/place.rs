//! The place that a launcher gave this process: its number and its ranks.

use config::{EngineChoice, RunConfig};
use launcher::{Address, Host, Launch, LaunchError, Launcher, RankPlacement, launch, variable};
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
    /// Where process 0 listens.
    pub rendezvous: Option<Address>,
    launcher: Launcher,
    hosts: Vec<Host>,
}

impl Place {
    /// The place that `launch` gives this process.
    pub fn of_launch(launch: Launch) -> Place {
        let Launch { launcher, process, processes, host, rendezvous, hosts, .. } = launch;
        let host = host.unwrap_or_else(own_host);
        // Ranks follow from the numbers of processes alone, so one host stands for all where the launcher names none.
        let hosts = hosts.unwrap_or_else(|| vec![Host { name: host.clone(), processes }]);
        Place { process, processes, host, rendezvous, launcher, hosts }
    }

    /// Who started this process.
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// The ranks of `mesh` in this process, ascending, where ranks fill hosts in the given `order`.
    ///
    /// # Errors
    /// A number of processes that does not divide the ranks.
    pub fn ranks_of(&self, mesh: &Mesh, order: PlacementOrder) -> Result<Vec<Rank>, Failure> {
        let all = self.placement(mesh, order)?;
        Ok(ascending(&all, self.process))
    }

    /// The ranks of all processes by number, each as [`Place::ranks_of`] returns them.
    ///
    /// # Errors
    /// The errors of [`Place::ranks_of`].
    pub fn ranks_of_processes(&self, mesh: &Mesh, order: PlacementOrder) -> Result<Vec<Vec<Rank>>, Failure> {
        let all = self.placement(mesh, order)?;
        Ok((0..self.processes).map(|process| ascending(&all, process)).collect())
    }

    fn placement(&self, mesh: &Mesh, order: PlacementOrder) -> Result<RankPlacement, Failure> {
        let Place { processes, launcher, .. } = self;
        if mesh.world_size() == 1 {
            return Err(Failure::Input(format!(
                "{launcher} started {processes} processes, and the run has 1 rank; start 1 process, or give the run ranks, such as \
                 --set parallelism.tp={processes}"
            )));
        }
        let placement = RankPlacement::new(mesh, &self.hosts, order);
        placement
            .map_err(|error| Failure::Input(format!("{launcher}: {error}; e.g. `{}`", launcher.command(error.fewer()))))
    }

    /// The ranks of the first of `layouts` in this process, where each of them can be placed: meshes with the orders in
    /// which their ranks fill hosts.
    ///
    /// # Errors
    /// A number of processes that does not divide the ranks of each.
    pub fn ranks_of_first(&self, layouts: &[(Mesh, PlacementOrder)]) -> Result<Vec<Rank>, Failure> {
        let Place { processes, launcher, .. } = self;
        let worlds: Vec<usize> = layouts.iter().map(|(mesh, _)| mesh.world_size()).collect();
        match (worlds.as_slice(), layouts) {
            ([first, second], _) if first != second && !worlds.iter().all(|world| world.is_multiple_of(*processes)) => {
                let numbers = mesh::divisors(*first).into_iter().filter(|number| second.is_multiple_of(*number));
                let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
                Err(Failure::Input(format!(
                    "{launcher}: {processes} processes must divide the {first} ranks of one run and the {second} of the other; start \
                     {} processes, or keep a run in process 0 with run.engine = \"threads\"",
                    numbers.join(" or ")
                )))
            }
            (_, [(mesh, order), ..]) => self.ranks_of(mesh, *order),
            (_, []) => Ok(vec![]),
        }
    }
}

/// The ranks of `process`, ascending.
fn ascending(placement: &RankPlacement, process: usize) -> Vec<Rank> {
    let mut ranks = placement.ranks_of(process).to_vec();
    ranks.sort_unstable();
    ranks
}

/// The ranks of a command, as this process sees them.
#[derive(Debug)]
pub enum Launched {
    /// All are in this process.
    Alone,
    /// All are in process 0, which is another one.
    InFirst,
    /// Each process has a share.
    Several(Launch),
}

impl Launched {
    /// Where the ranks of the runs of `configs` are. Ranks of a run with `run.engine = "threads"` are all in process 0.
    ///
    /// # Errors
    /// Variables of a launcher that contradict each other, and `run.engine = "processes"` without a launcher.
    pub fn of_runs(configs: &[&RunConfig]) -> Result<Launched, Failure> {
        if configs.iter().all(|config| config.run.engine == EngineChoice::Threads) {
            // Without an answer this process keeps the ranks: the run file asks for no launcher.
            return Ok(if own_number().is_ok_and(|number| number > 0) { Launched::InFirst } else { Launched::Alone });
        }
        let found = launch(&variable_of_launch);
        let found = found.map_err(|error| Failure::Input(error.to_string()))?;
        let needs_launcher = |config: &&&RunConfig| config.run.engine == EngineChoice::Processes;
        match (found, configs.iter().find(needs_launcher)) {
            (Some(launch), _) if launch.processes > 1 => Ok(Launched::Several(launch)),
            (Some(_), _) | (None, None) => Ok(Launched::Alone),
            (None, Some(config)) => Err(Failure::Input(format!(
                "run.engine = \"processes\" needs a launcher, and none started this process; use `pleach launch --nproc {} -- \
                 train ...`, or run.engine = \"auto\"",
                config.parallelism.world_size()
            ))),
        }
    }
}

/// A variable of this process for [`launch`]. Where nobody has given the start a number, it is that of the launcher's
/// process.
pub fn variable_of_launch(name: &str) -> Option<String> {
    let of_process =
        || (name == variable::JOB).then(mpi::launching_process).flatten().map(|process| process.to_string());
    std::env::var(name).ok().or_else(of_process)
}

/// The number that a launcher gave this process; 0 without a launcher.
///
/// # Errors
/// Variables of launchers that contradict each other.
pub fn own_number() -> Result<usize, Failure> {
    match launch(&variable_of_launch) {
        Ok(launch) => Ok(launch.map_or(0, |launch| launch.process)),
        // Only processes that meet need the address.
        Err(LaunchError::NoAddress { process, .. }) => Ok(process),
        Err(error) => Err(Failure::Input(error.to_string())),
    }
}

/// The name that a launcher gave this host; its own without one.
pub fn launched_host() -> String {
    launch(&variable_of_launch).ok().flatten().and_then(|launch| launch.host).unwrap_or_else(own_host)
}

/// The name of this host.
pub fn own_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
