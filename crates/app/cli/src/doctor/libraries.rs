//! Libraries where the system's loader would look for them, and programs where a shell would.

use std::path::{Path, PathBuf};

use launcher::Environment;
use mpi::loader::{names_in, search_path};

/// The library `name` (`libcuda.so`), or the first version of it (`libcuda.so.1`), as a path within `root`.
pub fn library(root: &Path, folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let is_version = |file: &str| file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    folders.iter().find_map(|folder| {
        let found = names_in(folder).into_iter().find(|file| is_version(file))?;
        Some(as_seen(root, &folder.join(found)))
    })
}

/// The program `name` in the folders of `PATH`.
pub fn program(root: &Path, environment: Environment<'_>, name: &str) -> Option<PathBuf> {
    let candidates = search_path(root, environment, "PATH").into_iter().map(|folder| folder.join(name));
    candidates.into_iter().find(|path| path.is_file()).map(|path| as_seen(root, &path))
}

/// A path below `root` as the process would name it.
fn as_seen(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).map_or(path.to_path_buf(), |rest| Path::new("/").join(rest))
}
