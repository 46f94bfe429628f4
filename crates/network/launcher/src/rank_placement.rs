//! The host and the process of each rank.

use mesh::{AxisSet, Mesh, PlacementOrder, Rank};

use crate::host_list::Host;

/// Ranks in processes on hosts. Each process has equally many ranks; processes are numbered host by host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlacement {
    hosts: Vec<Host>,
    ranks_per_process: usize,
    /// Ranks in the order of processes.
    ranks: Vec<Rank>,
    /// Place in that order, by rank.
    slots: Vec<usize>,
}

/// Processes that do not divide the ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ranks} ranks must be divided equally among processes; got {processes}; start {} processes, or change the degrees of \
     [parallelism]", alternatives(*ranks)
)]
pub struct RankPlacementError {
    /// Ranks of the run.
    pub ranks: usize,
    /// Processes of all hosts.
    pub processes: usize,
}

impl RankPlacementError {
    /// The largest number of processes that divides the ranks and is at most that of the hosts.
    pub fn fewer(&self) -> usize {
        (1..=self.processes).rev().find(|count| self.ranks.is_multiple_of(*count)).unwrap_or(1)
    }
}

/// The divisors of `ranks`, at most eight of them.
fn alternatives(ranks: usize) -> String {
    let mut divisors: Vec<String> =
        (1..=ranks).filter(|count| ranks.is_multiple_of(*count)).take(8).map(|count| count.to_string()).collect();
    match (divisors.pop(), divisors.is_empty()) {
        (Some(last), false) => format!("{} or {last}", divisors.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// A group whose members are on several hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossingGroup {
    /// The ranks.
    pub members: Vec<Rank>,
    /// Numbers of their hosts, ascending.
    pub hosts: Vec<usize>,
}

impl RankPlacement {
    /// The ranks of `mesh` on the processes of `hosts`, which they fill in the given order.
    ///
    /// # Errors
    /// See [`RankPlacementError`].
    pub fn new(mesh: &Mesh, hosts: &[Host], order: PlacementOrder) -> Result<RankPlacement, RankPlacementError> {
        let processes: usize = hosts.iter().map(|host| host.processes).sum();
        let world = mesh.world_size();
        if processes == 0 || !world.is_multiple_of(processes) {
            return Err(RankPlacementError { ranks: world, processes });
        }
        let mut ranks: Vec<Rank> = mesh.ranks().collect();
        ranks.sort_by_key(|rank| order.slot(mesh, *rank));
        let mut slots = vec![0; world];
        for (slot, rank) in ranks.iter().enumerate() {
            slots[rank.0] = slot;
        }
        Ok(RankPlacement { hosts: hosts.to_vec(), ranks_per_process: world / processes, ranks, slots })
    }

    /// The hosts, in the order of their processes.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Number of processes.
    pub fn processes(&self) -> usize {
        self.ranks.len() / self.ranks_per_process
    }

    /// The ranks of a process, in the order in which they are placed; none for a process that does not exist.
    pub fn ranks_of(&self, process: usize) -> &[Rank] {
        self.ranks.chunks(self.ranks_per_process).nth(process).unwrap_or_default()
    }

    /// The process of `rank`.
    ///
    /// # Panics
    /// When `rank` is not a rank of the mesh.
    pub fn process_of(&self, rank: Rank) -> usize {
        self.slots[rank.0] / self.ranks_per_process
    }

    /// Number of the host of `process`; that of the last host for a process that does not exist.
    pub fn host_of_process(&self, process: usize) -> usize {
        let mut before = 0;
        let host = self.hosts.iter().position(|host| {
            before += host.processes;
            process < before
        });
        host.unwrap_or(self.hosts.len().saturating_sub(1))
    }

    /// Number of the host of `rank`.
    ///
    /// # Panics
    /// When `rank` is not a rank of the mesh.
    pub fn host_of(&self, rank: Rank) -> usize {
        self.host_of_process(self.process_of(rank))
    }

    /// The groups of `mesh` along `axes` whose members are on several hosts.
    pub fn crossing(&self, mesh: &Mesh, axes: impl Into<AxisSet>) -> Vec<CrossingGroup> {
        let groups = mesh.groups(axes).into_iter().map(|members| {
            let mut hosts: Vec<usize> = members.iter().map(|rank| self.host_of(*rank)).collect();
            hosts.sort_unstable();
            hosts.dedup();
            CrossingGroup { members, hosts }
        });
        groups.filter(|group| group.hosts.len() > 1).collect()
    }
}
