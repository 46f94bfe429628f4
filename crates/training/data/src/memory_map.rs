//! A file as a slice of bytes, read by the system as it is touched.
#![allow(unsafe_code)]

use std::io;
use std::path::Path;
use std::sync::Once;

/// The message where a page of a map cannot be read: its file was cut, or the disk has failed.
const UNREADABLE: &[u8] =
    b"a file of data became shorter while it was read, or its disk has failed (SIGBUS); token files and \
    pairs must stay as they are while a command reads them: make or copy the file again under another name, rename it, \
    and start again\n";
const WORK_FAILED: i32 = 1;

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
        end_with_reason();
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

/// From now on, a page of a map that cannot be read ends the process with a message instead of a bare signal.
fn end_with_reason() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let end = || {
            let _ = rustix::io::write(io::stderr(), UNREADABLE);
            signal_hook::low_level::exit(WORK_FAILED);
        };
        // SAFETY: a handler may make calls of the system, and `end` makes two, write and _exit; it takes no lock and no
        // memory, and does not return to the access that failed.
        let registered = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGBUS, end) };
        // Without it the signal ends the process as before.
        let _ = registered;
    });
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The file that the test as a process of its own reads.
    const FILE: &str = "PLEACH_TEST_PART";

    #[test]
    fn a_file_that_is_cut_ends_the_process_with_a_reason() {
        if let Some(path) = std::env::var_os(FILE) {
            let map = MemoryMap::open(Path::new(&path)).expect("a file");
            std::fs::write(&path, "").expect("cut");
            panic!("{:?} was read", map.bytes().last());
        }
        let path = std::env::temp_dir().join(format!("pleach-cut-{}", std::process::id()));
        std::fs::write(&path, vec![1; 1 << 16]).expect("a file");
        let name = "memory_map::tests::a_file_that_is_cut_ends_the_process_with_a_reason";
        let mut child = Command::new(std::env::current_exe().expect("a program"));
        let ended = child.args(["--exact", name, "--nocapture"]).env(FILE, &path).output().expect("it starts");
        std::fs::remove_file(&path).expect("removed");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains("became shorter while it was read"), "{ended:?}");
    }
}
