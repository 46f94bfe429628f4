//! The memory of this host and of the next one as storage of checkpoints.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use checkpoint::{Disk, NewFile, Storage, named_steps};
use sync::lock;

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
    /// Steps of the checkpoint that this process began last.
    pub begun: Mutex<Option<u32>>,
}

impl PeerStorage {
    /// Waits until the checkpoint before that of `steps` is decided, and removes those before the last whole one. No
    /// lock is held meanwhile: other ranks of this process may still finish that one.
    fn begin(&self, steps: u32) -> io::Result<()> {
        let before = *lock(&self.begun);
        before.filter(|before| *before < steps).map_or(Ok(()), |before| self.decisions.wait(before))?;
        let mut begun = lock(&self.begun);
        if begun.is_none_or(|begun| begun < steps) {
            *begun = Some(steps);
            let whole = self.decisions.whole();
            self.folder.retain(|kept| kept == steps || kept == whole)?;
        }
        Ok(())
    }
}

impl Storage for PeerStorage {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create(&self, path: &Path, len_bytes: u64) -> io::Result<Box<dyn NewFile>> {
        let steps = path.parent().map_or(Err(not_one(path)), steps_of)?;
        self.begin(steps)?;
        let (file, peer) = (Disk.create(path, len_bytes)?, self.peer.clone());
        Ok(Box::new(PeerFile { file, path: path.to_path_buf(), steps, whole: self.decisions.whole(), peer }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

fn steps_of(path: &Path) -> io::Result<u32> {
    named_steps(path).ok_or_else(|| not_one(path))
}

fn not_one(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a checkpoint", path.display()))
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
