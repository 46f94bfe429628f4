//! Libraries where the system's loader would look for them, and programs where a shell would.

use std::path::{Path, PathBuf};

use launcher::Environment;

/// Folders that a loader knows by itself, of the systems that are usual.
const STANDARD_FOLDERS: &[&str] = &[
    "lib",
    "usr/lib",
    "lib64",
    "usr/lib64",
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
];
/// Files of the loader's configuration that may include each other; a loop ends here.
const MAX_INCLUDES: usize = 64;

/// The folders of the loader, first those that it searches first: `LD_LIBRARY_PATH`, `etc/ld.so.conf` and what that
/// includes, and the standard ones. Run paths within programs are not known here.
pub fn loader_folders(root: &Path, environment: Environment<'_>) -> Vec<PathBuf> {
    let mut folders = search_path(root, environment, "LD_LIBRARY_PATH");
    let mut files = vec![root.join("etc/ld.so.conf")];
    let mut next = 0;
    while next < files.len().min(MAX_INCLUDES) {
        let text = std::fs::read_to_string(&files[next]).unwrap_or_default();
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            match line.strip_prefix("include ") {
                Some(pattern) => files.extend(matching(root, pattern.trim())),
                None if !line.is_empty() => folders.push(below(root, line)),
                None => {}
            }
        }
        next += 1;
    }
    folders.extend(STANDARD_FOLDERS.iter().map(|folder| root.join(folder)));
    folders
}

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

/// The names of the files and folders in `folder`, sorted; none where it cannot be read.
pub fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

fn search_path(root: &Path, environment: Environment<'_>, variable: &str) -> Vec<PathBuf> {
    let list = environment(variable).unwrap_or_default();
    // Empty entries are the current folder, in which nothing of the system is.
    list.split(':').filter(|folder| !folder.is_empty()).map(|folder| below(root, folder)).collect()
}

/// An absolute path as one below `root`.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// A path below `root` as the process would name it.
fn as_seen(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).map_or(path.to_path_buf(), |rest| Path::new("/").join(rest))
}

/// Files that an include line means: `folder/*.conf`, or one file.
fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let path = match pattern.starts_with('/') {
        true => below(root, pattern),
        false => root.join("etc").join(pattern),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return vec![path] };
    let folder = path.parent().unwrap_or(root);
    let names = names_in(folder).into_iter().filter(|name| name.starts_with(start) && name.ends_with(end));
    names.map(|name| folder.join(name)).collect()
}
