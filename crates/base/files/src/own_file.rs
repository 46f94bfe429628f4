//! Files inside of a folder that a command fills: never written through a link, and never anything but regular files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::output::check_replaceable;

/// A file in the making, in the folder of the file that it will become. Dropped, it is removed.
#[derive(Debug)]
pub struct Draft {
    /// Takes the content.
    pub file: File,
    path: PathBuf,
    /// `None` once the file has its name.
    temporary: Option<PathBuf>,
}

impl Draft {
    /// An empty file that will be called `path`. A file of that name stays until [`Draft::keep`].
    ///
    /// # Errors
    /// A folder that cannot be written; a folder, a pipe or a device of that name.
    pub fn create(path: &Path) -> io::Result<Draft> {
        check_replaceable(path)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = path.with_file_name(format!(".{name}.partial-{}", std::process::id()));
        let file = recreate(&temporary)?;
        Ok(Draft { file, path: path.to_path_buf(), temporary: Some(temporary) })
    }

    /// The name that it has until it is kept.
    pub fn temporary(&self) -> &Path {
        self.temporary.as_deref().unwrap_or(&self.path)
    }

    /// Gives the file its name; what had it is gone then, and not earlier. A link of that name is replaced.
    ///
    /// # Errors
    /// The system's, and anything else than a file that has the name now; the draft is removed then.
    pub fn keep(mut self) -> io::Result<()> {
        check_replaceable(&self.path)?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.path)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Draft {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // A partial file is of no use; if it cannot be removed, the next process of this number does it.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Recreates the regular file `path`, empty, to write and read it. A file or a link that has the name is removed, so
/// that nothing is written through a link.
///
/// # Errors
/// Anything else of that name, a folder that cannot be written.
pub fn recreate(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() || found.is_symlink() => fs::remove_file(path)?,
        Ok(_) => return Err(not_regular()),
        Err(_) => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Opens the regular file `path` to append to it, and creates it where it is missing.
///
/// # Errors
/// A link or anything else that is not a regular file, a folder that cannot be written.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    open_itself(path, OpenOptions::new().append(true).create(true))
}

/// Opens the regular file `path` to read it and to write over it, and creates it where it is missing. Its content
/// stays.
///
/// # Errors
/// The errors of [`open_to_append`].
pub fn open_to_change(path: &Path) -> io::Result<File> {
    open_itself(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
}

/// Makes the file `len_bytes` long and takes the blocks for it, so that a full disk is found out now.
///
/// # Errors
/// A disk without room.
#[cfg(target_os = "linux")]
pub fn reserve(file: &File, len_bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len_bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(len_bytes),
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the file `len_bytes` long.
///
/// # Errors
/// The system's.
#[cfg(not(target_os = "linux"))]
pub fn reserve(file: &File, len_bytes: u64) -> io::Result<()> {
    file.set_len(len_bytes)
}

fn open_itself(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file =
        options.custom_flags(flags.bits() as i32).open(path).map_err(|error| match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() && !found.is_dir() => not_regular(),
            Ok(_) | Err(_) => error,
        })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a regular file, and only such are written here; remove it")
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pleach-own-files-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).expect("a file")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_draft_takes_the_name_at_once_or_leaves_nothing() {
        let folder = Folder::new("drafts");
        fs::write(folder.0.join("file"), "old").expect("a file");
        let path = folder.0.join("file");
        let draft = Draft::create(&path).expect("a draft");
        let temporary = draft.temporary().to_path_buf();
        assert!(temporary.exists() && folder.text("file") == "old");
        drop(draft);
        assert!(!temporary.exists() && folder.text("file") == "old");
        let mut draft = Draft::create(&path).expect("a draft");
        draft.file.write_all(b"new").and_then(|()| draft.keep()).expect("kept");
        assert!(!temporary.exists() && folder.text("file") == "new");
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = Folder::new("links");
        fs::write(folder.0.join("victim"), "kept").expect("a file");
        let link = folder.0.join("link");
        symlink("victim", &link).expect("a link");
        for opened in [open_to_append(&link), open_to_change(&link)] {
            let refused = opened.expect_err("a link").to_string();
            assert_eq!(refused, "it is not a regular file, and only such are written here; remove it");
        }
        recreate(&link).and_then(|mut file| file.write_all(b"new")).expect("written");
        assert!(!link.is_symlink() && folder.text("link") == "new");
        // A link that waits where a draft is made is removed, too.
        let draft = folder.0.join(format!(".file.partial-{}", std::process::id()));
        symlink("victim", &draft).expect("a link");
        Draft::create(&folder.0.join("file")).and_then(|mut draft| draft.file.write_all(b"new")).expect("written");
        assert_eq!(folder.text("victim"), "kept");
    }

    #[test]
    fn pipes_and_folders_are_refused_without_waiting() {
        let folder = Folder::new("pipes");
        let path = folder.0.join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        for path in [&path, &folder.0] {
            assert!(recreate(path).is_err() && open_to_append(path).is_err() && open_to_change(path).is_err());
        }
        assert!(open_to_append(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_draft_takes_the_place_of_nothing_but_a_file() {
        let folder = Folder::new("places");
        let path = folder.0.join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let pipe = || rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0);
        pipe().expect("a pipe");
        let refused = Draft::create(&path).expect_err("a pipe").to_string();
        assert_eq!(refused, "it is a pipe, and a file of that name is written here; remove it");
        // One that came after the draft stays, too.
        fs::remove_file(&path).expect("removed");
        let draft = Draft::create(&path).expect("a draft");
        pipe().expect("a pipe");
        assert!(draft.keep().is_err());
        assert!(!fs::metadata(&path).expect("a pipe").is_file() && fs::read_dir(&folder.0).expect("it").count() == 1);
    }

    #[test]
    fn what_is_there_stays_and_is_added_to() {
        let folder = Folder::new("additions");
        let path = folder.0.join("file");
        for word in ["one ", "two"] {
            open_to_append(&path).and_then(|mut file| file.write_all(word.as_bytes())).expect("written");
        }
        let mut text = String::new();
        open_to_change(&path).and_then(|mut file| file.read_to_string(&mut text)).expect("read");
        assert_eq!(text, "one two");
    }
}
