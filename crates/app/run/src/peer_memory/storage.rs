//! The memory of this host and of the next one as storage of checkpoints.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint::{Disk, NewFile, Storage, named_steps};

use crate::peer_memory::decisions::Decisions;
use crate::peer_memory::host_folder::HostFolder;
use crate::peer_memory::requests::Peer;

/// Writes each file to the folder of this host, and then sends it to a process of the next host. Threads that read
/// the state of ranks wait for the first only.
#[derive(Debug)]
pub struct PeerStorage {
    /// The folder of this host.
    pub folder: HostFolder,
    /// The process of the next host.
    pub peer: Peer,
    /// Which checkpoints are whole.
    pub decisions: Arc<Decisions>,
}

impl Storage for PeerStorage {
    /// Waits until the checkpoint before is decided, and removes those before the last whole one.
    fn create(&self, path: &Path, len_bytes: u64) -> io::Result<Box<dyn NewFile>> {
        let not_one = || io::Error::other(format!("{} is not in a checkpoint", path.display()));
        let steps = path.parent().and_then(named_steps).ok_or_else(not_one)?;
        let whole = self.decisions.begin(steps)?;
        self.folder.retain(|kept| kept == steps || kept == whole)?;
        let (file, peer) = (Disk.create(path, len_bytes)?, self.peer.clone());
        Ok(Box::new(PeerFile { file, path: path.to_path_buf(), steps, whole, peer }))
    }
}

/// A file in the making.
#[derive(Debug)]
struct PeerFile {
    file: Box<dyn NewFile>,
    path: PathBuf,
    steps: u32,
    whole: u32,
    peer: Peer,
}

impl NewFile for PeerFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }

    fn sync(self: Box<Self>) -> io::Result<()> {
        let PeerFile { file, path, steps, whole, peer } = *self;
        file.sync()?;
        peer.put(&path, steps, whole)
    }
}
