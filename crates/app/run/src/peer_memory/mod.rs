//! Checkpoints in the memory of hosts: the state of a host's ranks is in its own memory and in that of the next
//! host, so it survives all processes and any one host. The manifest, which makes such a checkpoint whole, is in
//! the folder of the run.

mod decisions;
mod host_folder;
mod memory_files;
mod requests;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkpoint::{CheckpointFolder, Committer, Manifest, PieceCollector, Store};
use config::{OnLoss, RunConfig};
use rendezvous::{PeerService, Token};
use serde::{Deserialize, Serialize};
use train::{SavingPlace, Setup, Start};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::peer_memory::decisions::{Decisions, MemoryCommitter};
use crate::peer_memory::host_folder::{Held, HostFolder};
use crate::peer_memory::memory_files::Copy;
use crate::peer_memory::requests::{Peer, serve};
use crate::peer_memory::storage::PeerStorage;
use crate::places::names::MEMORY;
use crate::process_group::group::ProcessGroup;
use crate::process_group::listening_addresses::own_address;
use crate::process_group::member::GroupMember;

pub use crate::peer_memory::memory_files::MemoryFiles;

/// Topic of the processes that serve memory.
const TOPIC: &str = "memory of hosts";

/// Whether a run begins, or continues and may have lost hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It begins.
    Fresh,
    /// It continues.
    Resumed,
}

/// Whether the folder of the run names checkpoints in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsFound {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// The message of one process to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Presence {
    host: String,
    address: SocketAddr,
    /// The files of its host, from the first process there.
    held: Held,
}

/// A host of the run.
#[derive(Clone, Debug)]
struct MemoryHost {
    name: String,
    /// Where its processes listen.
    addresses: Vec<SocketAddr>,
    held: Held,
}

/// The memory of all hosts, as one process of a run sees it.
pub struct PeerMemory {
    folder: HostFolder,
    hosts: Vec<MemoryHost>,
    /// The host of this process.
    own: usize,
    /// The number of this process on its host.
    local: usize,
    token: Option<Token>,
    patience: Duration,
    every: u32,
    _service: Option<PeerService>,
}

fn on_one_host(every: u32, host: &str) -> String {
    format!("run.memory_every = {every} needs another host; all ranks are on host {host}")
}

fn refused(one: &str) -> Failure {
    Failure::Input(format!("{one}; start processes on more hosts, or use run.memory_every = 0"))
}

impl PeerMemory {
    /// Opens the memory of the hosts of `process_group`, which all processes do at the same time; nothing where a run
    /// neither writes there nor `is_found` to have done so.
    ///
    /// # Errors
    /// A run on one host, a host without room, failures of other processes.
    pub fn open(
        process_group: &ProcessGroup,
        (config, setup): (&RunConfig, &Setup),
        beginning: Beginning,
        is_found: IsFound,
    ) -> Result<Option<PeerMemory>, Failure> {
        let every = config.run.memory_every;
        if every == 0 && is_found == IsFound::No {
            if beginning == Beginning::Fresh {
                // State of an earlier run in the same folder.
                let host = process_group.host();
                let _ = HostFolder::of(&config.run.folder, &host).remove();
            }
            return Ok(None);
        }
        let patience = Duration::from_secs_f32(config.run.timeout_seconds);
        let memory = match process_group {
            ProcessGroup::Alone => {
                let host = process_group.host();
                let folder = HostFolder::of(&config.run.folder, &host);
                let held = folder.held().unwrap_or_default();
                let hosts = vec![MemoryHost { name: host, addresses: vec![], held }];
                PeerMemory { folder, hosts, own: 0, local: 0, token: None, patience, every, _service: None }
            }
            ProcessGroup::Several(member) => PeerMemory::meet(member, config, patience)?,
        };
        memory.check_hosts(config, beginning, process_group)?;
        if memory.is_written() {
            memory.folder.open()?;
            memory.check_free_space(process_group, config, setup)?;
        }
        Ok(Some(memory))
    }

    fn meet(member: &GroupMember, config: &RunConfig, patience: Duration) -> Result<PeerMemory, Failure> {
        let host = member.place.host.clone();
        let folder = HostFolder::of(&config.run.folder, &host);
        let every = config.run.memory_every;
        let served = (|| {
            let cannot =
                |error: std::io::Error| Failure::Work(format!("run.memory_every: this process cannot listen: {error}"));
            let own = own_address(member.place.rendezvous.as_ref(), member.place.process).map_err(cannot)?;
            serve(own, member.token.clone(), folder.clone()).map_err(cannot)
        })();
        let service = served.inspect_err(|failure| member.report(failure))?;
        let here = || member.control.directory().processes.iter().filter(|entry| entry.host == host);
        let local = here().position(|entry| entry.process == member.place.process).unwrap_or(0);
        let held = if local == 0 { folder.held().unwrap_or_default() } else { Held::new() };
        let all = member.all_gather(TOPIC, &Presence { host: host.clone(), address: service.address(), held })?;
        let mut hosts: Vec<MemoryHost> = vec![];
        for Presence { host, address, held } in all {
            match hosts.iter_mut().find(|known| known.name == host) {
                Some(known) => known.addresses.push(address),
                None => hosts.push(MemoryHost { name: host, addresses: vec![address], held }),
            }
        }
        let own = hosts.iter().position(|known| known.name == host).unwrap_or(0);
        let token = Some(member.token.clone());
        Ok(PeerMemory { folder, hosts, own, local, token, patience, every, _service: Some(service) })
    }

    /// Whether checkpoints go there: with one host, where hosts may be lost, none do.
    fn is_written(&self) -> bool {
        self.every > 0 && self.hosts.len() > 1
    }

    /// Refuses a fresh run on one host, before there is anything to keep.
    ///
    /// # Errors
    /// A run that asks for checkpoints in the memory of another host, where there is none.
    pub fn check_fresh(process_group: &ProcessGroup, config: &RunConfig) -> Result<(), Failure> {
        let hosts: BTreeSet<&str> = match process_group {
            ProcessGroup::Alone => BTreeSet::new(),
            ProcessGroup::Several(member) => {
                member.control.directory().processes.iter().map(|entry| entry.host.as_str()).collect()
            }
        };
        let every = config.run.memory_every;
        if every == 0 || hosts.len() > 1 { Ok(()) } else { Err(refused(&on_one_host(every, &process_group.host()))) }
    }

    fn check_hosts(
        &self,
        config: &RunConfig,
        beginning: Beginning,
        process_group: &ProcessGroup,
    ) -> Result<(), Failure> {
        if self.every == 0 || self.hosts.len() > 1 {
            return Ok(());
        }
        let one = on_one_host(self.every, self.hosts.first().map_or("", |host| &host.name));
        match (beginning, config.run.on_loss) {
            (Beginning::Resumed, OnLoss::Replan) => {
                if process_group.is_first() {
                    tell(&format!("{one}: until others are back, checkpoints go to the disk only\n"));
                }
                Ok(())
            }
            (Beginning::Fresh, _) | (Beginning::Resumed, OnLoss::Stop | OnLoss::Wait) => Err(refused(&one)),
        }
    }

    fn check_free_space(&self, process_group: &ProcessGroup, config: &RunConfig, setup: &Setup) -> Result<(), Failure> {
        let name = &self.hosts[self.own].name;
        let needed = process_group.memory(config, setup)?.into_iter().find(|host| host.host == *name);
        let warning = self.folder.check_free_space(name, needed.map_or(0, |host| host.checkpoint_bytes))?;
        if self.local == 0 {
            warning.iter().for_each(|warning| tell(warning));
        }
        Ok(())
    }

    /// A line at the start of a run; nothing where no checkpoints go there.
    pub fn line(&self) -> String {
        if !self.is_written() {
            return String::new();
        }
        format!(
            "        every {} steps in {} and in the memory of the next of {} hosts\n",
            self.every,
            self.folder.path().display(),
            self.hosts.len()
        )
    }

    /// Lets `files` be read from the hosts that have those of `manifest`.
    ///
    /// # Errors
    /// A sentence about files that no host has.
    pub fn find(&self, manifest: &Manifest, files: &MemoryFiles) -> Result<(), String> {
        let steps = manifest.state.steps;
        let mut copies = BTreeMap::new();
        let mut missing = vec![];
        for file in &manifest.files {
            let of_file = self.copies_of(steps, &file.name, file.bytes);
            if of_file.is_empty() {
                missing.push(file.name.as_str());
            }
            copies.insert(file.name.clone(), of_file);
        }
        let (first, others) = match missing.as_slice() {
            [] => {
                files.find(steps, self.folder.clone(), copies);
                return Ok(());
            }
            [first] => (first, String::new()),
            [first, others @ ..] => (first, format!(" and {} others", others.len())),
        };
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        Err(format!(
            "the checkpoint in memory after step {steps} is not whole: {first}{others} of {} files must be on one of the \
             hosts {}",
            manifest.files.len(),
            hosts.join(", ")
        ))
    }

    /// This host's first.
    fn copies_of(&self, steps: u32, name: &str, bytes: u64) -> Vec<Copy> {
        let has = |host: &&MemoryHost| host.held.get(&steps).and_then(|files| files.get(name)) == Some(&bytes);
        let (own, others) = self.hosts.split_at(self.own);
        let from_own = others.iter().chain(own);
        let copy = |host: &MemoryHost| match (host.name == self.hosts[self.own].name, &self.token) {
            (true, _) => Some(Copy::Here(host.name.clone())),
            (false, Some(token)) => Some(Copy::There(self.peer(host, token)?)),
            (false, None) => None,
        };
        from_own.filter(has).filter_map(copy).collect()
    }

    /// The process of `host` that this one asks.
    fn peer(&self, host: &MemoryHost, token: &Token) -> Option<Peer> {
        let address = *host.addresses.get(self.local % host.addresses.len().max(1))?;
        Some(Peer { host: host.name.clone(), address, token: token.clone(), patience: self.patience })
    }

    /// Checkpoints of the next attempt, which begins at `start`. State of later steps is removed. Nothing where
    /// none go there.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn attempt(&self, member: &GroupMember, start: Start<'_>) -> Result<Option<MemoryAttempt>, Failure> {
        let steps = start.steps();
        let is_in_memory = start.checkpoint().is_some_and(|checkpoint| is_in_memory(checkpoint.path()));
        let number = member.next_delivery();
        if self.local == 0 {
            let kept = self.folder.retain(|kept| kept <= steps);
            kept.map_err(|error| Failure::Work(format!("{}: {error}", self.folder.path().display())))?;
        }
        let next = &self.hosts[(self.own + 1) % self.hosts.len()];
        let peer = self.token.as_ref().and_then(|token| self.peer(next, token));
        let Some(peer) = peer.filter(|_| self.is_written()) else { return Ok(None) };
        let decisions = Arc::new(Decisions::new(&member.control, number, if is_in_memory { steps } else { 0 }));
        let folder = self.folder.clone();
        let storage = PeerStorage { folder, peer, decisions: Arc::clone(&decisions), begun: Mutex::new(None) };
        let folder = CheckpointFolder::of_data(self.folder.path(), Arc::new(storage));
        Ok(Some(MemoryAttempt { folder, decisions, every: self.every }))
    }

    /// The end of the run, which all processes reach at the same time: nothing stays in memory.
    pub fn forget(&self) {
        if self.local == 0 {
            // One that cannot be removed is reported when it is in the way.
            let _ = self.folder.remove();
        }
    }

    /// Where state is left on each host, in a sentence; nothing where none is.
    pub fn left(&self) -> Option<String> {
        self.folder.held().ok().filter(|held| !held.is_empty())?;
        Some(format!(
            "state is left in the memory of the hosts: a start that resumes uses it; to discard it, remove {} and its like on the \
             other hosts\n",
            self.folder.path().display()
        ))
    }
}

/// Checkpoints in memory of one attempt, in one process.
pub struct MemoryAttempt {
    folder: CheckpointFolder,
    /// Which of them are whole.
    decisions: Arc<Decisions>,
    every: u32,
}

impl MemoryAttempt {
    /// Commits the pieces of `processes` processes to `manifests`, on process 0.
    pub fn committer<'a>(&'a self, manifests: &'a Store, processes: usize) -> MemoryCommitter<'a> {
        MemoryCommitter::new(Committer::new(manifests, processes), &self.decisions)
    }

    /// As a place for the state of this process's ranks, whose records go to `collector`.
    pub fn place<'a>(&'a self, collector: &'a dyn PieceCollector) -> SavingPlace<'a> {
        SavingPlace { folder: &self.folder, collector, every: self.every }
    }
}

/// Whether the manifest at `path` is that of a checkpoint in memory.
fn is_in_memory(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with(MEMORY))
}
