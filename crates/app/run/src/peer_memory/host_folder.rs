//! The folder of a host in its memory: the state of its ranks and of those of the host before it, for the steps
//! that are kept. It outlives the processes of an attempt.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use checkpoint::{Found, named};
use config::figures::bytes;
use files::{Draft, InputKind, disk_space_at};
use rendezvous::hash_bytes;
use rustix::process::geteuid;

use crate::failure::Failure;

/// A file system in memory that every Linux has.
const SHARED_MEMORY: &str = "/dev/shm";
/// The type of such a file system.
const TMPFS: u64 = 0x0102_1994;

/// Files with their lengths, by the steps that they belong to.
pub type Held = BTreeMap<u32, BTreeMap<String, u64>>;

/// A folder of one run and one host.
#[derive(Clone, Debug)]
pub struct HostFolder {
    path: PathBuf,
}

impl HostFolder {
    /// The folder of the run in `run` on `host`. Nothing is made.
    pub fn of(run: &Path, host: &str) -> HostFolder {
        HostFolder::within(Path::new(SHARED_MEMORY), run, host)
    }

    fn within(parent: &Path, run: &Path, host: &str) -> HostFolder {
        let run = run.canonicalize().or_else(|_| std::path::absolute(run)).unwrap_or_else(|_| run.to_path_buf());
        let hash = hash_bytes(run.as_os_str().as_encoded_bytes());
        let host: String = host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        HostFolder { path: parent.join(format!("pleach-{hash:016x}-{host}")) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder, for this user alone, if it is not there.
    ///
    /// # Errors
    /// A folder that cannot be made, or that belongs to someone else.
    pub fn open(&self) -> Result<(), Failure> {
        let path = self.path.display();
        let made = fs::DirBuilder::new().mode(0o700).create(&self.path);
        unless(ErrorKind::AlreadyExists, made)
            .map_err(|error| Failure::Input(format!("run.memory_every: {path} cannot be made: {error}")))?;
        let found = fs::symlink_metadata(&self.path).map_err(|error| Failure::Input(format!("{path}: {error}")))?;
        let is_own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
        match is_own {
            true => Ok(()),
            false => Err(Failure::Input(format!(
                "run.memory_every: {path} must be a folder that this user alone may read; remove it"
            ))),
        }
    }

    /// Checks that `needed` bytes fit there, with those that the folder has already, and whether that is memory: a
    /// warning otherwise.
    ///
    /// # Errors
    /// Too little room.
    pub fn check_free_space(&self, host: &str, needed: u64) -> Result<Option<String>, Failure> {
        let held: u64 = self.held().iter().flat_map(Held::values).flat_map(BTreeMap::values).sum();
        let free = disk_space_at(&self.path).map_or(u64::MAX, |room| room.free_bytes).saturating_add(held);
        if free < needed {
            return Err(Failure::Input(format!(
                "run.memory_every needs {} in {SHARED_MEMORY} of host {host}, which has {} left; mount it with more, by \
                 `mount -o remount,size=... {SHARED_MEMORY}` or --shm-size of a container, or use run.memory_every = 0",
                bytes(needed),
                bytes(free)
            )));
        }
        let is_memory = rustix::fs::statfs(&self.path).is_ok_and(|system| u64::try_from(system.f_type) == Ok(TMPFS));
        Ok((!is_memory)
            .then(|| format!("{SHARED_MEMORY} of host {host} is not a tmpfs: checkpoints there may go to a disk\n")))
    }

    /// The files that are there.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn held(&self) -> io::Result<Held> {
        let mut held = Held::new();
        for Found { steps, path } in self.versions()? {
            let mut files = BTreeMap::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if let Ok(name) = entry.file_name().into_string()
                    && is_file_name(&name)
                {
                    files.insert(name, entry.metadata()?.len());
                }
            }
            held.insert(steps, files);
        }
        Ok(held)
    }

    fn versions(&self) -> io::Result<Vec<Found>> {
        named(&self.path).map_err(io::Error::other)
    }

    /// Removes the state after each number of steps that `is_kept` does not keep. Several processes of the host may
    /// do so at the same time.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn retain(&self, is_kept: impl Fn(u32) -> bool) -> io::Result<()> {
        let mut removed = self.versions()?.into_iter().filter(|found| !is_kept(found.steps));
        removed.try_for_each(|found| remove_folder(&found.path))
    }

    /// Removes all of it.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn remove(&self) -> io::Result<()> {
        remove_folder(&self.path)
    }

    /// The file `name` of the state after `steps` steps.
    ///
    /// # Errors
    /// A name that no rank's file has.
    fn file(&self, steps: u32, name: &str) -> io::Result<PathBuf> {
        match is_file_name(name) {
            true => Ok(self.path.join(format!("step-{steps:08}")).join(name)),
            false => Err(io::Error::new(ErrorKind::InvalidInput, format!("{name:?} is not a file of a checkpoint"))),
        }
    }

    /// Writes a file of `len_bytes` that another host sends in parts; it gets its name after the last one. All parts
    /// are taken, also where they cannot be written.
    ///
    /// # Errors
    /// A folder without room, and a connection that has ended.
    pub fn receive(
        &self,
        steps: u32,
        name: &str,
        len_bytes: u64,
        mut next: impl FnMut() -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        let mut draft = self.file(steps, name).and_then(|path| {
            unless(ErrorKind::AlreadyExists, path.parent().map_or(Ok(()), fs::create_dir))?;
            Draft::create(&path)
        });
        let mut left = len_bytes;
        while left > 0 {
            let part = next()?;
            left = left.checked_sub(part.len() as u64).ok_or(ErrorKind::InvalidData)?;
            draft = draft.and_then(|mut draft| draft.write_all(&part).map(|()| draft));
        }
        draft?.keep()
    }

    /// Fills `bytes` from `offset_bytes` of a file on.
    ///
    /// # Errors
    /// A file that is not there, or too short.
    pub fn read(&self, steps: u32, name: &str, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let file = files::open(&self.file(steps, name)?, InputKind::Data)?;
        file.read_exact_at(bytes, offset_bytes)
    }
}

/// Removes a folder that another process may remove at the same time.
fn remove_folder(path: &Path) -> io::Result<()> {
    unless(ErrorKind::NotFound, fs::remove_dir_all(path))
}

/// `done`, where an error of `kind` says that another process has done it.
fn unless(kind: ErrorKind, done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == kind { Ok(()) } else { Err(error) })
}

/// Whether `name` is one of a rank's file; so it leads to no other folder.
fn is_file_name(name: &str) -> bool {
    let number = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removed with the test.
    struct Parent(PathBuf);

    impl Parent {
        fn new(name: &str) -> Parent {
            let path = std::env::temp_dir().join(format!("pleach-host-folder-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Parent(path)
        }

        fn folder(&self, run: &str, host: &str) -> HostFolder {
            HostFolder::within(&self.0, Path::new(run), host)
        }
    }

    impl Drop for Parent {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn runs_and_hosts_have_folders_of_their_own() {
        let parent = Parent::new("own");
        let paths = [("a", "x"), ("b", "x"), ("a", "y")].map(|(run, host)| parent.folder(run, host).path);
        assert!(paths[0] != paths[1] && paths[0] != paths[2], "{paths:?}");
        assert_eq!(parent.folder("a", "../x/y").path.parent(), Some(parent.0.as_path()), "a name leads nowhere else");
    }

    #[test]
    fn files_arrive_in_parts_and_have_their_names_when_they_are_whole() {
        let parent = Parent::new("parts");
        let folder = parent.folder("run", "host");
        folder.open().expect("made");
        folder.open().expect("it may be there");
        let name = "rank-00003.safetensors";
        let mut parts = [b"abc".to_vec(), b"de".to_vec()].into_iter();
        let next = || {
            assert_eq!(folder.held().expect("read")[&7], BTreeMap::new(), "not whole");
            parts.next().ok_or(ErrorKind::UnexpectedEof.into())
        };
        folder.receive(7, name, 5, next).expect("room");
        assert_eq!(folder.held().expect("read")[&7], BTreeMap::from([(name.to_string(), 5)]));
        let mut bytes = [0; 3];
        folder.read(7, name, &mut bytes, 2).expect("whole");
        assert_eq!(&bytes, b"cde");
        folder.receive(9, name, 1, || Ok(b"x".to_vec())).expect("room");
        assert!(folder.receive(9, name, 1, || Ok(b"xy".to_vec())).is_err(), "too long");
        folder.retain(|steps| steps > 7).expect("removed");
        assert_eq!(folder.held().expect("read").into_keys().collect::<Vec<_>>(), [9]);
        folder.remove().expect("removed");
        assert_eq!(folder.held().expect("none"), Held::new());
    }

    #[test]
    fn names_that_lead_elsewhere_and_folders_of_others_are_refused() {
        let parent = Parent::new("refused");
        let folder = parent.folder("run", "host");
        folder.open().expect("made");
        for name in ["../rank-00000.safetensors", "rank-.safetensors", "manifest.json", "rank-0/../1.safetensors", ""] {
            assert!(folder.receive(1, name, 0, || Ok(vec![])).is_err(), "{name}");
        }
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&folder.path, open_to_all).expect("permissions");
        let refused = folder.open().expect_err("others may read it").to_string();
        assert!(refused.ends_with(" must be a folder that this user alone may read; remove it"), "{refused}");
        let linked = parent.folder("run", "link");
        std::os::unix::fs::symlink(&parent.0, &linked.path).expect("a link");
        assert!(linked.open().is_err(), "a link is not a folder");
    }

    #[test]
    fn too_little_room_is_refused_with_both_numbers() {
        let parent = Parent::new("room");
        let folder = parent.folder("run", "host");
        folder.open().expect("made");
        assert!(folder.check_free_space("a", 1).is_ok());
        let refused = folder.check_free_space("a", u64::MAX).expect_err("no machine has so much").to_string();
        assert!(refused.starts_with("run.memory_every needs 18.4 EB in /dev/shm of host a, which has "), "{refused}");
    }
}
