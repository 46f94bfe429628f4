//! The memory of a run on each of its hosts: the arenas of their ranks, and the receive memory of connections between
//! processes.

use comm::processes::{Process, ProcessMap, receive_memory_bytes};
use config::figures::{bytes, counted};
use mesh::Rank;
use train::{Setup, checkpoint_bytes};

use crate::failure::Failure;
use crate::memory::machine::MemoryLimit;
use crate::memory::taken::arenas_bytes;

/// A process of a run: its host and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProcess {
    /// Name of the host.
    pub host: String,
    pub ranks: Vec<Rank>,
}

/// Memory of the ranks on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Name of the host.
    pub host: String,
    /// Number of its processes.
    pub processes: usize,
    /// Number of its ranks.
    pub ranks: usize,
    /// Bytes of the arenas of its ranks.
    pub arena_bytes: u64,
    /// Bytes in which its processes receive, however much is sent.
    pub connection_bytes: u64,
    /// Bytes of checkpoints in its memory: of its own ranks and of those of the host before it, twice.
    pub checkpoint_bytes: u64,
}

/// Checkpoints that a host keeps in its memory: the newest, and the one that is written.
const KEPT: u64 = 2;

impl HostMemory {
    /// The hosts of `processes`, in the order of their first processes, with what the run of `setup` needs there, where
    /// the memory of hosts takes checkpoints every `memory_every` steps.
    ///
    /// # Errors
    /// Processes that do not have all ranks once.
    pub fn of_hosts(setup: &Setup, processes: &[HostProcess], memory_every: u32) -> Result<Vec<HostMemory>, Failure> {
        let process = |HostProcess { host, ranks }: &HostProcess| Process {
            ranks: ranks.clone(),
            host: host.clone(),
            tcp: None,
            local: None,
        };
        let process_map = ProcessMap::new(processes.iter().map(process).collect());
        let process_map = process_map.map_err(|error| Failure::Work(error.to_string()))?;
        let mut hosts: Vec<HostMemory> = vec![];
        for (number, HostProcess { host, ranks }) in processes.iter().enumerate() {
            let own = HostMemory {
                host: host.clone(),
                processes: 1,
                ranks: ranks.len(),
                arena_bytes: arenas_bytes(setup, ranks),
                connection_bytes: receive_memory_bytes(&process_map, number) as u64,
                checkpoint_bytes: 0,
            };
            match hosts.iter_mut().find(|known| known.host == own.host) {
                Some(known) => known.add(&own),
                None => hosts.push(own),
            }
        }
        if memory_every > 0 && hosts.len() > 1 {
            let state = state_bytes(setup, processes, &hosts);
            for (number, host) in hosts.iter_mut().enumerate() {
                let before = if number == 0 { state.len() - 1 } else { number - 1 };
                host.checkpoint_bytes = KEPT * (state[number] + state[before]);
            }
        }
        Ok(hosts)
    }

    fn add(&mut self, process: &HostMemory) {
        self.processes += process.processes;
        self.ranks += process.ranks;
        self.arena_bytes += process.arena_bytes;
        self.connection_bytes += process.connection_bytes;
    }

    /// Bytes of arenas, connections and checkpoints.
    pub fn bytes(&self) -> u64 {
        self.arena_bytes.saturating_add(self.connection_bytes).saturating_add(self.checkpoint_bytes)
    }

    /// Checks that the host has the memory, by the `limit` there.
    ///
    /// # Errors
    /// A host with too little.
    pub fn check(&self, limit: Option<MemoryLimit>) -> Result<(), Failure> {
        let Some(limit) = limit.filter(|limit| self.bytes() > limit.bytes) else { return Ok(()) };
        Err(Failure::Input(format!(
            "memory on host {} does not fit: {} in {} need {} of arenas{} and {} of connections, {} has {}; start fewer of the processes \
             there, or use a layout whose ranks need less{}: `pleach check --hosts FILE` shows both",
            self.host,
            counted(self.ranks as u64, "rank"),
            counted_processes(self.processes),
            bytes(self.arena_bytes),
            self.checkpoints().map_or(String::new(), |size| format!(", {size} of checkpoints")),
            bytes(self.connection_bytes),
            limit.source,
            bytes(limit.bytes),
            self.checkpoints().map_or("", |_| ", or run.memory_every = 0")
        )))
    }

    /// The size of checkpoints in its memory, if there are any.
    fn checkpoints(&self) -> Option<String> {
        (self.checkpoint_bytes > 0).then(|| bytes(self.checkpoint_bytes))
    }
}

/// Bytes of the files of a checkpoint on each of `hosts`.
fn state_bytes(setup: &Setup, processes: &[HostProcess], hosts: &[HostMemory]) -> Vec<u64> {
    let mut state = vec![0; hosts.len()];
    for HostProcess { host, ranks } in processes {
        let bytes: u64 = ranks.iter().map(|rank| checkpoint_bytes(setup, *rank)).sum();
        if let Some(number) = hosts.iter().position(|known| known.host == *host) {
            state[number] += bytes;
        }
    }
    state
}

/// The connections and the host that needs most, in a line below that of the arenas.
pub fn line(hosts: &[HostMemory]) -> String {
    let connections = hosts.iter().map(|host| host.connection_bytes).sum();
    let processes = hosts.iter().map(|host| host.processes).sum();
    let mut largest: Option<&HostMemory> = None;
    for host in hosts {
        if largest.is_none_or(|largest| host.bytes() > largest.bytes()) {
            largest = Some(host);
        }
    }
    largest.map_or(String::new(), |host| {
        let checkpoints: u64 = hosts.iter().map(|host| host.checkpoint_bytes).sum();
        let checkpoints =
            if checkpoints == 0 { String::new() } else { format!(", {} of checkpoints", bytes(checkpoints)) };
        format!(
            "        {} of connections in {}{checkpoints}; host {} needs the most, {}\n",
            bytes(connections),
            counted_processes(processes),
            host.host,
            bytes(host.bytes())
        )
    })
}

/// `1 process`, `4 processes`.
pub fn counted_processes(processes: usize) -> String {
    if processes == 1 { "1 process".into() } else { format!("{processes} processes") }
}

#[cfg(test)]
mod tests {
    use config::RunConfig;

    use super::*;
    use crate::memory::machine::LimitSource;

    /// Two stages on two hosts: 2 processes of 2 ranks on a, one of 4 ranks on b.
    fn hosts() -> (Setup, Vec<HostMemory>) {
        let overrides = ["parallelism.dp=4", "parallelism.tp=1", "parallelism.pp=2"].map(String::from);
        let RunConfig { model, parallelism, train, run, .. } = RunConfig::load("", "", &overrides).expect("legal");
        let setup = Setup::of_run(model, parallelism, train, &run.samples).expect("a plan");
        let process = |host: &str, ranks: &[usize]| HostProcess {
            host: host.into(),
            ranks: ranks.iter().map(|rank| Rank(*rank)).collect(),
        };
        let processes = [process("a", &[0, 1]), process("b", &[4, 5, 6, 7]), process("a", &[2, 3])];
        let hosts = HostMemory::of_hosts(&setup, &processes, 0).expect("hosts");
        (setup, hosts)
    }

    #[test]
    fn a_host_needs_the_arenas_of_its_ranks_and_the_connections_of_its_processes() {
        let (setup, hosts) = hosts();
        let shown: Vec<(&str, usize, usize)> =
            hosts.iter().map(|host| (host.host.as_str(), host.processes, host.ranks)).collect();
        assert_eq!(shown, [("a", 2, 4), ("b", 1, 4)]);
        // All ranks of a stage have equal arenas, and each host has a stage.
        let of_stage = |stage: usize| 4 * setup.programs.arena_bytes(stage) as u64;
        assert_eq!(hosts.iter().map(|host| host.arena_bytes).collect::<Vec<_>>(), [of_stage(0), of_stage(1)]);
        // 64 pieces of 64 KiB and for each of two peers 32 KiB and 128 KiB: `comm` counts it.
        let connections = 64 * 65_536 + 2 * (32 + 128) * 1024;
        assert_eq!(hosts[0].connection_bytes, 2 * connections);
        assert_eq!(hosts[1].connection_bytes, connections);
    }

    #[test]
    fn a_host_with_too_little_memory_is_named() {
        let host = HostMemory {
            host: "b".into(),
            processes: 1,
            ranks: 4,
            arena_bytes: 3_000_000_000,
            connection_bytes: 4_500_000,
            checkpoint_bytes: 0,
        };
        let limit = |bytes| Some(MemoryLimit { bytes, source: LimitSource::Machine });
        assert!(host.check(None).is_ok() && host.check(limit(3_004_500_000)).is_ok());
        assert_eq!(
            host.check(limit(3_000_000_000)).expect_err("too little").to_string(),
            "memory on host b does not fit: 4 ranks in 1 process need 3.00 GB of arenas and 4.50 MB of connections, this \
             machine has 3.00 GB; start fewer of the processes there, or use a layout whose ranks need less: `pleach check \
             --hosts FILE` shows both"
        );
        let saving = HostMemory { checkpoint_bytes: 2_000_000_000, ..host.clone() };
        assert_eq!(
            saving.check(limit(3_004_500_000)).expect_err("too little").to_string(),
            "memory on host b does not fit: 4 ranks in 1 process need 3.00 GB of arenas, 2.00 GB of checkpoints and 4.50 MB of \
             connections, this machine has 3.00 GB; start fewer of the processes there, or use a layout whose ranks need less, or \
             run.memory_every = 0: `pleach check --hosts FILE` shows both"
        );
        let other = HostMemory { host: "a".into(), arena_bytes: 1, ..host.clone() };
        assert_eq!(
            line(&[other, host]),
            "        9.00 MB of connections in 2 processes; host b needs the most, 3.00 GB\n"
        );
    }
}
