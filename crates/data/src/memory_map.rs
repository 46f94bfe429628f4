//! A file as a slice of bytes, read by the system as it is touched.
#![allow(unsafe_code)]

use std::io;
use std::path::Path;

/// A file mapped for reading.
#[derive(Debug)]
pub struct MemoryMap {
    /// `None` for an empty file, of which there is nothing to map.
    map: Option<memmap2::Mmap>,
}

impl MemoryMap {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// The error of the system, also for other than ordinary files.
    pub fn open(path: &Path) -> io::Result<MemoryMap> {
        let file = files::open(path, files::InputKind::Data)?;
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            return Ok(MemoryMap { map: None });
        }
        // SAFETY: the map is only read, as bytes, of which every value is legal. As with every mapped file, nobody may
        // write or cut it while it is open; files of this crate are written under another name and then renamed, never
        // changed in place.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(MemoryMap { map: Some(map) })
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}
