//! Where the system's loader looks for libraries.

use std::path::{Path, PathBuf};

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
pub fn folders(root: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
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

/// The names of the files and folders in `folder`, sorted; none where it cannot be read.
pub fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// The folders of `variable`, a list like `PATH`, as paths below `root`.
pub fn search_path(root: &Path, environment: &dyn Fn(&str) -> Option<String>, variable: &str) -> Vec<PathBuf> {
    let list = environment(variable).unwrap_or_default();
    // Empty entries are the current folder, in which nothing of the system is.
    list.split(':').filter(|folder| !folder.is_empty()).map(|folder| below(root, folder)).collect()
}

/// An absolute path as one below `root`.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
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
