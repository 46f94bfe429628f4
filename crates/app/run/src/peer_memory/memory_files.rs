//! The files of a checkpoint in the memory of hosts, as ranks read them: those of their own host, or those of
//! another one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use checkpoint::{CheckpointError, DataFiles};
use rendezvous::PeerLink;
use sync::lock;

use crate::messages::stderr::tell;
use crate::peer_memory::host_folder::HostFolder;
use crate::peer_memory::requests::{Peer, get};

/// A place of a file.
#[derive(Clone, Debug)]
pub enum Copy {
    /// In the memory of this host.
    Here(String),
    /// In that of another one.
    There(Peer),
}

impl Copy {
    fn host(&self) -> &str {
        match self {
            Copy::Here(host) => host,
            Copy::There(peer) => &peer.host,
        }
    }
}

/// The files, once the processes have met and know who has them.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    found: Arc<OnceLock<Found>>,
}

#[derive(Debug)]
struct Found {
    steps: u32,
    folder: HostFolder,
    copies: BTreeMap<String, Vec<Copy>>,
    /// Connections that nobody uses at this moment.
    idle: Mutex<BTreeMap<SocketAddr, Vec<PeerLink>>>,
    /// Copies whose damage was reported.
    reported: Mutex<BTreeSet<(String, usize)>>,
}

impl MemoryFiles {
    /// From now on the files of the state after `steps` steps are read from `copies`, those of this host in `folder`.
    pub fn find(&self, steps: u32, folder: HostFolder, copies: BTreeMap<String, Vec<Copy>>) {
        let (idle, reported) = (Mutex::default(), Mutex::default());
        // They are found once.
        let _ = self.found.set(Found { steps, folder, copies, idle, reported });
    }

    fn found(&self) -> io::Result<&Found> {
        self.found.get().ok_or_else(|| io::Error::other("the processes have not met"))
    }
}

impl Found {
    fn copy(&self, name: &str, copy: usize) -> io::Result<&Copy> {
        let copies = self.copies.get(name).and_then(|copies| copies.get(copy));
        copies.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no host has it"))
    }
}

impl DataFiles for MemoryFiles {
    fn copies(&self, name: &str) -> usize {
        self.found.get().and_then(|found| found.copies.get(name)).map_or(0, Vec::len)
    }

    fn read(&self, name: &str, copy: usize, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let found = self.found()?;
        match found.copy(name, copy)? {
            Copy::Here(_) => found.folder.read(found.steps, name, bytes, offset_bytes),
            Copy::There(peer) => {
                let idle = lock(&found.idle).get_mut(&peer.address).and_then(Vec::pop);
                let mut link = idle.map_or_else(|| peer.connect(), Ok)?;
                get(&mut link, found.steps, name, bytes, offset_bytes)?;
                // One that failed is not used again.
                lock(&found.idle).entry(peer.address).or_default().push(link);
                Ok(())
            }
        }
    }

    fn replaced(&self, name: &str, copy: usize, error: &CheckpointError) {
        let Ok(found) = self.found() else { return };
        if !lock(&found.reported).insert((name.to_string(), copy)) {
            return;
        }
        let host = found.copy(name, copy).map_or("", Copy::host);
        tell(&format!(
            "the copy of {name} in the memory of host {host} is not used, but that of another host: {error}\n"
        ));
    }
}
