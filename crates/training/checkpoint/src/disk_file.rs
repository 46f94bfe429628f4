//! A file of a checkpoint on a disk of this machine, written around the page cache where the system lets it.
//!
//! To copy a GiB into the cache takes about a second of a core, and a step that computes meanwhile misses that core.
//! Around it the disk takes the bytes from where they are, but only whole pages of memory for whole pages of the file,
//! so they gather in some.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use bytemuck::{Pod, Zeroable};

use crate::disk::{NewFile, write_all_at};

/// A multiple of the sectors of all common disks.
const PAGE_BYTES: usize = 4096;
/// Pages that are written at once: 4 MiB.
const MAX_PAGES: usize = 1024;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Whether writes use the system's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheUse {
    AroundCache,
    ThroughCache,
}

/// A file that takes bytes in their order.
pub(crate) struct DiskFile {
    file: File,
    way: CacheUse,
    /// Take bytes until they are full.
    pages: Vec<Page>,
    gathered_bytes: usize,
    /// The content of the file.
    written_bytes: u64,
}

impl DiskFile {
    /// Makes the file, with room for `len_bytes`.
    pub(crate) fn create(path: &Path, len_bytes: u64) -> io::Result<DiskFile> {
        let file = File::create_new(path)?;
        files::reserve(&file, len_bytes)?;
        // Some file systems know one way only.
        let way = match take(&file, CacheUse::AroundCache) {
            Ok(()) => CacheUse::AroundCache,
            Err(_) => CacheUse::ThroughCache,
        };
        let num_pages = (len_bytes as usize).div_ceil(PAGE_BYTES).clamp(1, MAX_PAGES);
        Ok(DiskFile { file, way, pages: vec![Page::zeroed(); num_pages], gathered_bytes: 0, written_bytes: 0 })
    }

    fn write_gathered(&mut self) -> io::Result<()> {
        let gathered = &bytemuck::cast_slice(&self.pages)[..self.gathered_bytes];
        let mut written = write_all_at(&self.file, gathered, self.written_bytes);
        if self.way == CacheUse::AroundCache && written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput)
        {
            // Some find out late, or ask for larger pages.
            take(&self.file, CacheUse::ThroughCache)?;
            self.way = CacheUse::ThroughCache;
            written = write_all_at(&self.file, gathered, self.written_bytes);
        }
        written?;
        self.written_bytes += self.gathered_bytes as u64;
        self.gathered_bytes = 0;
        Ok(())
    }
}

impl NewFile for DiskFile {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = &mut bytemuck::cast_slice_mut(&mut self.pages)[self.gathered_bytes..];
            let (now, later) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            self.gathered_bytes += now.len();
            bytes = later;
            if self.gathered_bytes == self.pages.len() * PAGE_BYTES {
                self.write_gathered()?;
            }
        }
        Ok(())
    }

    fn sync(mut self: Box<Self>) -> io::Result<()> {
        // The end is not a whole page.
        take(&self.file, CacheUse::ThroughCache)?;
        self.write_gathered()?;
        self.file.sync_all()
    }
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}, {} bytes written", self.file, self.way, self.written_bytes)
    }
}

#[cfg(target_os = "linux")]
fn take(file: &File, way: CacheUse) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(file)?;
    let flags = match way {
        CacheUse::AroundCache => flags | OFlags::DIRECT,
        CacheUse::ThroughCache => flags - OFlags::DIRECT,
    };
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn take(_: &File, way: CacheUse) -> io::Result<()> {
    match way {
        CacheUse::AroundCache => Err(io::ErrorKind::Unsupported.into()),
        CacheUse::ThroughCache => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Removed with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pleach-disk-file-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn content(len_bytes: usize) -> Vec<u8> {
        (0..len_bytes).map(|index| (index % 251) as u8).collect()
    }

    /// In parts that are not whole pages.
    fn appended(mut file: DiskFile, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(300_007).try_for_each(|part| file.append(part))?;
        Box::new(file).sync()
    }

    #[test]
    fn both_ways_write_the_same_bytes() {
        let folder = Folder::new("ways");
        let full = MAX_PAGES * PAGE_BYTES;
        for len_bytes in [1, PAGE_BYTES, full - 1, full, full + 1, 2 * full + 12_345] {
            let bytes = content(len_bytes);
            for way in [CacheUse::AroundCache, CacheUse::ThroughCache] {
                let path = folder.0.join(format!("{len_bytes}-{way:?}"));
                let mut file = DiskFile::create(&path, len_bytes as u64).expect("a file");
                if way == CacheUse::ThroughCache {
                    take(&file.file, way).expect("it is always there");
                    file.way = way;
                }
                appended(file, &bytes).expect("room");
                assert!(std::fs::read(&path).expect("a file") == bytes, "{len_bytes} bytes, {way:?}");
            }
        }
    }

    /// A page that begins at an odd byte of the file is one that no disk takes from memory.
    #[test]
    fn what_the_disk_does_not_take_goes_through_the_cache() {
        let folder = Folder::new("refused");
        let (path, bytes) = (folder.0.join("file"), content(3 * PAGE_BYTES));
        let mut file = DiskFile::create(&path, bytes.len() as u64).expect("a file");
        file.written_bytes = 1;
        file.append(&bytes).expect("room");
        assert_eq!(file.way, CacheUse::ThroughCache, "{file:?}");
        Box::new(file).sync().expect("room");
        assert!(std::fs::read(&path).expect("a file")[1..] == bytes);
    }
}
