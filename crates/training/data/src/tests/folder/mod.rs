//! A folder for one test, removed at its end.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder.
pub struct Folder(PathBuf);

impl Folder {
    /// A new folder, which no other test has; `name` is for people who read the path.
    pub fn new(name: &str) -> Folder {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(format!("pleach-data-{name}-{process}-{thread:?}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// The path of `name` inside; the folder with a separator after it for an empty name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and the folders above it.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    /// Reads a file.
    pub fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
