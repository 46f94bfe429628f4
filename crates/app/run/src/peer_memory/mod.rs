//! Checkpoints in the memory of hosts: ordinary files of ranks in a folder in memory, each with a copy on the next
//! host, so they survive all processes and any one host. The manifest, which makes such a checkpoint whole, is in the
//! folder of the run.

mod decisions;
mod host_folder;
mod memory_files;
mod requests;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use checkpoint::{Checkpoint, CheckpointFolder};
use config::{OnLoss, RunConfig};
use rendezvous::PeerService;
use train::{SavingPlace, Setup, Start};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::peer_memory::decisions::Decisions;
use crate::peer_memory::host_folder::{Held, HostFolder};
use crate::peer_memory::memory_files::{Copy, MemoryFiles};
use crate::peer_memory::requests::{Peer, serve};
use crate::peer_memory::storage::PeerStorage;
use crate::process_group::group::ProcessGroup;
use crate::process_group::listening_addresses::own_address;
use crate::process_group::member::GroupMember;

/// Topic of the processes that serve memory.
const TOPIC: &str = "memory of hosts";

/// How a run begins; one that continues may have lost hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// With its first step.
    Fresh,
    /// From a checkpoint on the disk: its folder names none in memory.
    FromDisk,
    /// From a checkpoint in memory, or on the disk.
    FromMemory,
}

/// The message of one process to the others: its host, its address, and from the first process there the files of its
/// host.
type Presence = (String, SocketAddr, Held);

/// The memory of all hosts, as one process of a run sees it.
pub struct PeerMemory {
    folder: HostFolder,
    /// The host of this process and those after it, with their files.
    hosts: Vec<(Copy, Held)>,
    /// The number of this process on its host.
    local: usize,
    every: u32,
    _service: Option<PeerService>,
}

impl PeerMemory {
    /// Opens the memory of the hosts of `process_group`, which all processes do at the same time; nothing where a run
    /// neither writes there nor finds checkpoints there.
    ///
    /// # Errors
    /// A run on one host, a host without room, failures of other processes.
    pub fn open(
        process_group: &ProcessGroup,
        (config, setup): (&RunConfig, &Setup),
        beginning: Beginning,
    ) -> Result<Option<PeerMemory>, Failure> {
        let (host, every) = (process_group.host(), config.run.memory_every);
        let folder = HostFolder::of(&config.run.folder, &host);
        if every == 0 && beginning != Beginning::FromMemory {
            if beginning == Beginning::Fresh {
                // State of an earlier run in the same folder.
                let _ = folder.remove();
            }
            return Ok(None);
        }
        PeerMemory::check_hosts(process_group, config, beginning)?;
        let memory = match process_group {
            ProcessGroup::Alone => {
                let hosts = vec![(Copy::Here(host), folder.held().unwrap_or_default())];
                PeerMemory { folder, hosts, local: 0, every, _service: None }
            }
            ProcessGroup::Several(member) => PeerMemory::meet(member, config, folder)?,
        };
        if memory.is_written() {
            memory.folder.open()?;
            memory.check_free_space(process_group, config, setup)?;
        }
        Ok(Some(memory))
    }

    fn meet(member: &GroupMember, config: &RunConfig, folder: HostFolder) -> Result<PeerMemory, Failure> {
        let (host, process, token) = (member.place.host.clone(), member.place.process, member.token.clone());
        let cannot = |error: io::Error| Failure::Work(format!("run.memory_every: this process cannot listen: {error}"));
        let own = own_address(member.place.rendezvous.as_ref(), process);
        let service = own.and_then(|own| serve(own, token.clone(), folder.clone())).map_err(cannot);
        let service = service.inspect_err(|failure| member.report(failure))?;
        let mut here = member.control.directory().processes.iter().filter(|entry| entry.host == host);
        let local = here.position(|entry| entry.process == process).unwrap_or(0);
        let held = if local == 0 { folder.held().unwrap_or_default() } else { Held::new() };
        let own: Presence = (host.clone(), service.address(), held);
        let mut hosts: Vec<(String, Vec<SocketAddr>, Held)> = vec![];
        for (host, address, held) in member.all_gather(TOPIC, &own)? {
            match hosts.iter_mut().find(|known| known.0 == host) {
                Some(known) => known.1.push(address),
                None => hosts.push((host, vec![address], held)),
            }
        }
        let before = hosts.iter().take_while(|known| known.0 != host).count();
        hosts.rotate_left(before);
        let patience = Duration::from_secs_f32(config.run.timeout_seconds);
        let copy = |(name, addresses, held): (String, Vec<SocketAddr>, Held)| match name == host {
            true => (Copy::Here(name), held),
            false => {
                // The processes of a host share the work of another one.
                let address = addresses[local % addresses.len()];
                (Copy::There(Peer { host: name, address, token: token.clone(), patience }), held)
            }
        };
        let hosts = hosts.into_iter().map(copy).collect();
        Ok(PeerMemory { folder, hosts, local, every: config.run.memory_every, _service: Some(service) })
    }

    /// Whether checkpoints go there: with one host, where hosts may be lost, none do.
    fn is_written(&self) -> bool {
        self.every > 0 && self.hosts.len() > 1
    }

    /// Refuses a run on one host, a fresh one before there is anything to keep. For one that continues without lost
    /// hosts a line says that checkpoints go to the disk.
    ///
    /// # Errors
    /// A run that asks for checkpoints in the memory of another host, where there is none.
    pub fn check_hosts(process_group: &ProcessGroup, config: &RunConfig, beginning: Beginning) -> Result<(), Failure> {
        let member = process_group.member().map(|member| &member.control.directory().processes);
        let hosts: BTreeSet<&str> = member.into_iter().flatten().map(|entry| entry.host.as_str()).collect();
        let every = config.run.memory_every;
        if every == 0 || hosts.len() > 1 {
            return Ok(());
        }
        let one =
            format!("run.memory_every = {every} needs another host; all ranks are on host {}", process_group.host());
        if beginning == Beginning::Fresh || config.run.on_loss != OnLoss::Replan {
            return Err(Failure::Input(format!("{one}; start processes on more hosts, or use run.memory_every = 0")));
        }
        if process_group.is_first() {
            tell(&format!("{one}: until others are back, checkpoints go to the disk only\n"));
        }
        Ok(())
    }

    fn check_free_space(&self, process_group: &ProcessGroup, config: &RunConfig, setup: &Setup) -> Result<(), Failure> {
        let name = process_group.host();
        let needed = process_group.memory(config, setup)?.into_iter().find(|host| host.host == name);
        let warning = self.folder.check_free_space(&name, needed.map_or(0, |host| host.checkpoint_bytes))?;
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

    /// Lets the data of `checkpoint` be read from the hosts that have them, this one first.
    ///
    /// # Errors
    /// A sentence about files that no host has.
    pub fn find(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        let (steps, files) = (checkpoint.state().steps, &checkpoint.manifest().files);
        let copies = |name: &str, bytes: u64| -> Vec<Copy> {
            let has = |held: &Held| held.get(&steps).and_then(|files| files.get(name)) == Some(&bytes);
            self.hosts.iter().filter(|(_, held)| has(held)).map(|(copy, _)| copy.clone()).collect()
        };
        let copies: BTreeMap<String, Vec<Copy>> =
            files.iter().map(|file| (file.name.clone(), copies(&file.name, file.bytes))).collect();
        let missing: Vec<&String> =
            copies.iter().filter(|(_, copies)| copies.is_empty()).map(|(name, _)| name).collect();
        let (first, others) = match missing.as_slice() {
            [] => {
                checkpoint.find(MemoryFiles::new(steps, self.folder.clone(), copies));
                return Ok(());
            }
            [first] => (first, String::new()),
            [first, others @ ..] => (first, format!(" and {} others", others.len())),
        };
        let hosts: Vec<&str> = self.hosts.iter().map(|(copy, _)| copy.host()).collect();
        Err(format!(
            "the checkpoint in memory after step {steps} is not whole: {first}{others} of {} files must be on one of the \
             hosts {}",
            files.len(),
            hosts.join(", ")
        ))
    }

    /// Checkpoints of the next attempt, which begins at `start`. State of later steps is removed. Nothing where
    /// none go there.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn attempt(&self, member: &GroupMember, start: Start<'_>) -> Result<Option<MemoryAttempt>, Failure> {
        let (steps, number) = (start.steps(), member.next_delivery());
        if self.local == 0 {
            let kept = self.folder.retain(|kept| kept <= steps);
            kept.map_err(|error| Failure::Work(format!("{}: {error}", self.folder.path().display())))?;
        }
        let next = self.hosts.get(1).filter(|_| self.is_written());
        let Some((Copy::There(peer), _)) = next else { return Ok(None) };
        let decisions = Arc::new(Decisions::new(&member.control, number, steps));
        let (folder, peer) = (self.folder.clone(), peer.clone());
        let storage = PeerStorage { folder, peer, decisions: Arc::clone(&decisions) };
        let folder = CheckpointFolder::in_memory(self.folder.path(), Arc::new(storage));
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
    pub decisions: Arc<Decisions>,
    every: u32,
}

impl MemoryAttempt {
    /// The place for the state of this process's ranks.
    pub fn place(&self) -> SavingPlace<'_> {
        SavingPlace { folder: &self.folder, every: self.every }
    }
}
