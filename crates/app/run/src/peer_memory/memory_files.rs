//! The files of a checkpoint in the memory of hosts, as ranks read them: those of their own host, or those of
//! another one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use checkpoint::{CheckpointError, DataFiles};
use rendezvous::PeerLink;
use sync::lock;

use crate::messages::stderr::tell;
use crate::peer_memory::host_folder::HostFolder;
use crate::peer_memory::requests::{Peer, get};

/// A place of files.
#[derive(Clone, Debug)]
pub enum Copy {
    /// In the memory of this host.
    Here(String),
    /// In that of another one.
    There(Peer),
}

impl Copy {
    /// Name of the host.
    pub fn host(&self) -> &str {
        match self {
            Copy::Here(host) => host,
            Copy::There(peer) => &peer.host,
        }
    }
}

/// The files of the state after some steps, once the processes have met and know who has them.
#[derive(Debug)]
pub struct MemoryFiles {
    steps: u32,
    folder: HostFolder,
    copies: BTreeMap<String, Vec<Copy>>,
    /// Connections that nobody uses at this moment.
    idle: Mutex<BTreeMap<SocketAddr, Vec<PeerLink>>>,
    /// Copies whose damage was reported.
    reported: Mutex<BTreeSet<(String, usize)>>,
}

impl MemoryFiles {
    /// The files of the state after `steps` steps in `copies` by name, those of this host in `folder`.
    pub fn new(steps: u32, folder: HostFolder, copies: BTreeMap<String, Vec<Copy>>) -> MemoryFiles {
        MemoryFiles { steps, folder, copies, idle: Mutex::default(), reported: Mutex::default() }
    }

    fn copy(&self, name: &str, copy: usize) -> io::Result<&Copy> {
        let copies = self.copies.get(name).and_then(|copies| copies.get(copy));
        copies.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no host has it"))
    }
}

impl DataFiles for MemoryFiles {
    fn copies(&self, name: &str) -> usize {
        self.copies.get(name).map_or(0, Vec::len)
    }

    fn read(&self, name: &str, copy: usize, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self.copy(name, copy)? {
            Copy::Here(_) => self.folder.read(self.steps, name, bytes, offset_bytes),
            Copy::There(peer) => {
                let idle = lock(&self.idle).get_mut(&peer.address).and_then(Vec::pop);
                let mut link = idle.map_or_else(|| peer.connect(), Ok)?;
                get(&mut link, self.steps, name, bytes, offset_bytes)?;
                // One that failed is not used again.
                lock(&self.idle).entry(peer.address).or_default().push(link);
                Ok(())
            }
        }
    }

    fn replaced(&self, name: &str, copy: usize, error: &CheckpointError) {
        if lock(&self.reported).insert((name.to_string(), copy)) {
            let host = self.copy(name, copy).map_or("", Copy::host);
            tell(&format!(
                "the copy of {name} in the memory of host {host} is not used, but that of another host: {error}\n"
            ));
        }
    }
}
