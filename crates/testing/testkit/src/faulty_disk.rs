//! A disk that halts, is dead or is full after a number of bytes.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoint::{Disk, NewFile, Storage};

/// The fault after the last byte.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The thread that needs a byte more calls this with the kind of access, and waits forever: the process can be
    /// killed there, in the middle of a write.
    Halt(fn(Access)),
    /// The same without an end of this process: nothing is done any more, by anyone.
    Dead,
    /// Writes fail; names can still be changed and removed.
    Full,
}

/// A step of a save on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Bytes of a file.
    Data,
    /// A sync of a file or of a folder.
    Sync,
    /// A new file, a new folder, a rename or a removal.
    Name,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Data => "data",
            Access::Sync => "sync",
            Access::Name => "name",
        })
    }
}

/// Wraps a disk. Steps that write no data count as a byte.
#[derive(Clone)]
pub struct FaultyDisk {
    fault: Fault,
    left: Arc<AtomicU64>,
}

impl FaultyDisk {
    /// More bytes than any test takes.
    pub const PLENTY: u64 = 1 << 50;

    /// A disk with room for `bytes`.
    pub fn new(fault: Fault, bytes: u64) -> FaultyDisk {
        FaultyDisk { fault, left: Arc::new(AtomicU64::new(bytes)) }
    }

    /// From now on it has room for `bytes`, as when someone makes room.
    pub fn set_left(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or what is left of them; says how many.
    fn take(&self, bytes: u64) -> u64 {
        let take = |left: u64| Some(left - bytes.min(left));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        bytes.min(before)
    }

    fn step(&self, access: Access) -> io::Result<()> {
        match (self.fault, self.take(1)) {
            (Fault::Halt(_) | Fault::Dead, 0) => self.end(access),
            (Fault::Halt(_) | Fault::Dead | Fault::Full, _) => Ok(()),
        }
    }

    fn end(&self, access: Access) -> io::Result<()> {
        match self.fault {
            Fault::Halt(report) => {
                report(access);
                loop {
                    std::thread::park();
                }
            }
            Fault::Dead => Err(io::Error::other("the process is dead")),
            Fault::Full => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {} bytes", self.fault, self.left())
    }
}

impl Storage for FaultyDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.step(Access::Name)?;
        Disk.create_folder(path)
    }

    fn create(&self, path: &Path, len_bytes: u64) -> io::Result<Box<dyn NewFile>> {
        self.step(Access::Name)?;
        let file = Disk.create(path, len_bytes)?;
        Ok(Box::new(FaultyFile { file, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(Access::Name)?;
        Disk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step(Access::Sync)?;
        Disk.sync_folder(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.step(Access::Name)?;
        Disk.remove_folder(path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn NewFile>,
    disk: FaultyDisk,
}

impl NewFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let taken = self.disk.take(bytes.len() as u64) as usize;
        self.file.append(&bytes[..taken])?;
        if taken < bytes.len() { self.disk.end(Access::Data) } else { Ok(()) }
    }

    fn sync(self: Box<Self>) -> io::Result<()> {
        self.disk.step(Access::Sync)?;
        self.file.sync()
    }
}
