//! The communicators of MPI for the groups of a process's ranks.

use super::open::OpenError;
use super::process_map::ProcessMap;
use crate::library::{Library, LibraryCommunicator, LibraryGroup, LibrarySums};
use mesh::{Group, Rank};
use mpi::{Collective, CommunicatorNumber, Endpoint, IDLE_TAG};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// The groups of a process's ranks that other processes share, each with a communicator in each lane. Dropping it frees
/// the communicators; no rank uses them any more, and all processes of a run drop it before they open the groups of the
/// next world.
pub struct MpiGroups {
    endpoint: Arc<Endpoint>,
    /// The communicators, in the order in which they were opened.
    numbers: Vec<CommunicatorNumber>,
    /// By lane and members.
    groups: BTreeMap<(usize, Vec<Rank>), LibraryGroup>,
}

impl MpiGroups {
    /// Opens communicators for `groups`, which are those of the ranks of this process in its lanes, each within `wait`,
    /// unless `ended` returns the reason for which the run has ended. All processes that share a group open it.
    ///
    /// # Errors
    /// A library that fails, or a process that does not take part.
    pub fn open(
        endpoint: &Arc<Endpoint>,
        process_map: &ProcessMap,
        groups: impl Iterator<Item = (usize, Group)>,
        sums: LibrarySums,
        wait: Duration,
        ended: &dyn Fn() -> Option<String>,
    ) -> Result<MpiGroups, OpenError> {
        // One order of all groups of the world: the first that is not open yet is the next of each of its processes.
        let keys: BTreeSet<(usize, Vec<Rank>)> = groups.map(|(lane, group)| (lane, group.members().to_vec())).collect();
        let mut groups = MpiGroups { endpoint: Arc::clone(endpoint), numbers: vec![], groups: BTreeMap::new() };
        for (lane, members) in keys {
            let by_process = by_process(process_map, &members);
            if by_process.len() < 2 {
                continue;
            }
            let processes = by_process.keys().copied().collect();
            let number = endpoint.open_communicator(processes, tag(lane, &members), wait, ended)?;
            groups.numbers.push(number);
            let communicator = Arc::new(MpiCommunicator { endpoint: Arc::clone(endpoint), number });
            let group = LibraryGroup { communicator, by_process: by_process.into_values().collect(), sums, wait };
            groups.groups.insert((lane, members), group);
        }
        Ok(groups)
    }
}

impl Drop for MpiGroups {
    fn drop(&mut self) {
        self.endpoint.free_communicators(std::mem::take(&mut self.numbers));
    }
}

impl Library for MpiGroups {
    fn group(&self, lane: usize, group: &Group) -> Option<LibraryGroup> {
        self.groups.get(&(lane, group.members().to_vec())).cloned()
    }
}

/// The positions of `members` by the number of their process.
fn by_process(process_map: &ProcessMap, members: &[Rank]) -> BTreeMap<usize, Vec<usize>> {
    let mut positions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (position, rank) in members.iter().enumerate() {
        if let Some(process) = process_map.process_of(*rank) {
            positions.entry(process).or_default().push(position);
        }
    }
    positions
}

/// The same on all members, and most likely another one for another group.
fn tag(lane: usize, members: &[Rank]) -> u32 {
    let mut hash = Xxh3::new();
    hash.write_u64(lane as u64);
    members.iter().for_each(|rank| hash.write_u64(rank.0 as u64));
    (hash.digest() % u64::from(IDLE_TAG)) as u32
}

struct MpiCommunicator {
    endpoint: Arc<Endpoint>,
    number: CommunicatorNumber,
}

impl LibraryCommunicator for MpiCommunicator {
    fn begin(&self, collective: Collective, memory: Vec<u64>) -> Receiver<Vec<u64>> {
        self.endpoint.begin(self.number, collective, memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::Process;

    #[test]
    fn members_are_sorted_by_process_and_groups_have_tags_of_their_own() {
        let process =
            |ranks: [usize; 2]| Process { ranks: ranks.map(Rank).to_vec(), host: "a".into(), tcp: None, local: None };
        let map = ProcessMap::new(vec![process([0, 3]), process([1, 2])]).expect("a process map");
        let positions = |members: [usize; 3]| by_process(&map, &members.map(Rank)).into_iter().collect::<Vec<_>>();
        assert_eq!(positions([0, 1, 3]), [(0, vec![0, 2]), (1, vec![1])]);
        assert_eq!(positions([2, 3, 1]), [(0, vec![1]), (1, vec![0, 2])]);
        let tags = [tag(0, &[Rank(0), Rank(1)]), tag(1, &[Rank(0), Rank(1)]), tag(0, &[Rank(0), Rank(2)])];
        assert!(tags.iter().all(|tag| *tag < IDLE_TAG) && tags[0] != tags[1] && tags[0] != tags[2]);
    }
}
