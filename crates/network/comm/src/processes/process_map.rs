//! The processes of a world: their ranks, and how they are reached.

use crate::host_map::HostMap;
use mesh::Rank;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use secrets::Secret;
use std::hash::Hasher;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Connections that the system holds for a listener before they are accepted.
const BACKLOG: i32 = 16_384;
/// The largest number of ranks and of lanes: both travel as 32 bits.
const LIMIT: usize = u32::MAX as usize;

/// A secret that all processes of a world share, and nobody else.
#[derive(Clone, Debug)]
pub struct WorldToken(Secret);

impl WorldToken {
    /// Number of bytes.
    pub const BYTES: usize = Secret::BYTES;

    /// The token of these bytes, which must be random.
    pub const fn new(bytes: [u8; WorldToken::BYTES]) -> WorldToken {
        WorldToken(Secret::new(bytes))
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.0
    }
}

/// Where a process listens for others of its machine: an abstract socket, which ends with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The machine: processes with the same value can reach the socket. See [`this_machine`].
    pub machine: String,
    /// The abstract name, without the zero byte at its start.
    pub name: Vec<u8>,
}

/// One process of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub ranks: Vec<Rank>,
    /// The name of its host, for messages. Processes with the same name are on one host for collectives.
    pub host: String,
    /// Where it listens for processes of other machines.
    pub tcp: Option<SocketAddr>,
    /// Where it listens for processes of its machine, which then share memory with it.
    pub local: Option<LocalAddress>,
}

/// All processes of a world, by number. Every process has the same process map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMap {
    processes: Vec<Process>,
    /// The process of each rank.
    process_of: Vec<usize>,
}

/// Why a list of processes is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessMapError {
    /// A rank that no process or more than one has.
    #[error(
        "{rank} must be in one process of the process map; got {processes}: number the ranks of all processes from 0 on"
    )]
    Rank {
        /// The rank.
        rank: Rank,
        /// The number of processes that have it.
        processes: usize,
    },
    /// A process without ranks.
    #[error("process {process} on host {host} must have a rank; got none: leave it out of the process map")]
    NoRanks {
        /// The process.
        process: usize,
        /// Its host.
        host: String,
    },
    /// A rank whose number does not fit.
    #[error("{rank} of process {process} must be below the number of ranks, {world_size}")]
    TooLarge {
        /// The process.
        process: usize,
        /// The rank.
        rank: Rank,
        /// The number of ranks of all processes together.
        world_size: usize,
    },
}

impl ProcessMap {
    /// The process map of `processes`, by number.
    ///
    /// # Errors
    /// Ranks that are not `0..n`, each in one process; a process without ranks.
    pub fn new(processes: Vec<Process>) -> Result<ProcessMap, ProcessMapError> {
        let world_size: usize = processes.iter().map(|process| process.ranks.len()).sum();
        let mut owners: Vec<Vec<usize>> = vec![vec![]; world_size];
        for (number, process) in processes.iter().enumerate() {
            if process.ranks.is_empty() {
                return Err(ProcessMapError::NoRanks { process: number, host: process.host.clone() });
            }
            for &rank in &process.ranks {
                let too_large = ProcessMapError::TooLarge { process: number, rank, world_size };
                owners.get_mut(rank.0).filter(|_| rank.0 < LIMIT).ok_or(too_large)?.push(number);
            }
        }
        let owner = |(rank, owners): (usize, &Vec<usize>)| match owners[..] {
            [owner] => Ok(owner),
            _ => Err(ProcessMapError::Rank { rank: Rank(rank), processes: owners.len() }),
        };
        let process_of = owners.iter().enumerate().map(owner).collect::<Result<_, _>>()?;
        Ok(ProcessMap { processes, process_of })
    }

    /// The processes, by number.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.process_of.len()
    }

    /// The process of a rank of the world.
    pub fn process_of(&self, rank: Rank) -> Option<usize> {
        self.process_of.get(rank.0).copied()
    }

    /// The hosts of all ranks, by the names of hosts.
    pub fn host_map(&self) -> HostMap {
        let names: Vec<&str> = self.process_of.iter().map(|process| self.processes[*process].host.as_str()).collect();
        HostMap::by_name(&names)
    }

    /// Whether two processes share memory.
    pub(super) fn share_memory(&self, one: usize, other: usize) -> bool {
        match (&self.processes[one].local, &self.processes[other].local) {
            (Some(one), Some(other)) => one.machine == other.machine,
            (Some(_) | None, _) => false,
        }
    }

    /// A process with its ranks and its host, for messages.
    pub(super) fn name(&self, process: usize) -> String {
        let Process { ranks, host, .. } = &self.processes[process];
        let numbers: Vec<String> = ranks.iter().map(|rank| rank.0.to_string()).collect();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("process {process} ({noun} {}) on host {host}", numbers.join(", "))
    }

    /// A number that differs between worlds whose processes could not work together.
    pub(super) fn fingerprint(&self, num_lanes: usize) -> u64 {
        let mut hash = Xxh3::new();
        let mut put = |number: usize| hash.write_u64(number as u64);
        put(num_lanes);
        for process in &self.processes {
            put(process.ranks.len());
            process.ranks.iter().for_each(|rank| put(rank.0));
        }
        // Members of a group that see other hosts wait for other messages.
        self.host_map().numbers(self.world_size()).for_each(put);
        hash.digest()
    }
}

/// Where a process is reached. Both sockets may be missing where no other process has to reach it.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For processes of other machines.
    pub tcp: Option<TcpListener>,
    /// For processes of this machine.
    pub local: Option<UnixListener>,
    /// The library over which pieces of messages go; all processes have one, or none has.
    pub mpi: Option<Arc<mpi::Endpoint>>,
}

impl Listeners {
    /// A listener at `address`, with a queue for all processes of a large run.
    ///
    /// # Errors
    /// The system's.
    pub fn open_tcp(address: SocketAddr) -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listen(&listener, BACKLOG)?;
        Ok(listener)
    }

    /// A listener at a name that the system chooses.
    ///
    /// # Errors
    /// The system's.
    pub fn open_local() -> io::Result<(UnixListener, LocalAddress)> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
        listen(&socket, BACKLOG)?;
        let listener = UnixListener::from(socket);
        let address = listener.local_addr()?;
        let name = address.as_abstract_name().ok_or(io::ErrorKind::AddrNotAvailable)?.to_vec();
        Ok((listener, LocalAddress { machine: this_machine()?, name }))
    }
}

/// A name of this machine, as far as local sockets reach: equal for two processes that can reach each other's.
///
/// # Errors
/// The system's, where it does not name its boot and its network.
pub fn this_machine() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let network = std::fs::read_link("/proc/self/ns/net")?;
    Ok(format!("{} {}", boot.trim(), network.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(ranks: &[usize]) -> Process {
        Process { ranks: ranks.iter().copied().map(Rank).collect(), host: "a".into(), tcp: None, local: None }
    }

    #[test]
    fn ranks_that_are_missing_or_doubled_are_named() {
        let message = |processes: &[&[usize]]| {
            ProcessMap::new(processes.iter().map(|ranks| process(ranks)).collect()).unwrap_err().to_string()
        };
        assert_eq!(
            message(&[&[0, 1], &[1, 3]]),
            "rank 1 must be in one process of the process map; got 2: number the ranks of all processes from 0 on"
        );
        assert_eq!(message(&[&[0], &[2]]), "rank 2 of process 1 must be below the number of ranks, 2");
        assert_eq!(
            message(&[&[0], &[]]),
            "process 1 on host a must have a rank; got none: leave it out of the process map"
        );
    }

    #[test]
    fn local_listeners_have_names_of_their_own() {
        let ((_one, first), (_other, second)) = (Listeners::open_local().unwrap(), Listeners::open_local().unwrap());
        assert_ne!(first.name, second.name);
        assert_eq!(first.machine, second.machine);
    }
}
