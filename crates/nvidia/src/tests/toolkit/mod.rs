//! The folder with NVIDIA's wheels, where PLEACH_CUDA names one.

use std::path::{Path, PathBuf};

/// The folder. Without the variable a test prints that it skips; with it, whatever is missing is a failure.
pub fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("PLEACH_CUDA");
    if folder.is_none() {
        eprintln!("skipped: PLEACH_CUDA is not set; tools/install-cuda.sh installs NVIDIA's wheels");
    }
    folder.map(PathBuf::from)
}

/// Whether one of the folders of headers below `root` has `header`.
pub fn has_header(root: &Path, header: &str) -> bool {
    all_include_folders(root).iter().any(|folder| folder.join(header).is_file())
}

fn all_include_folders(root: &Path) -> Vec<PathBuf> {
    let packages = std::fs::read_dir(root.join("lib")).into_iter().flatten().flatten();
    let roots: Vec<PathBuf> = packages.map(|entry| entry.path().join("site-packages")).chain([root.into()]).collect();
    let below = ["nvidia/cu13/include", "nvidia/cudnn/include", "nvidia/nccl/include", "include"];
    let folders = roots.iter().flat_map(|root| below.iter().map(move |below| root.join(below)));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// The folders of headers below `root`, with `header` in one of them.
pub fn include_folders(root: &Path, header: &str) -> Vec<PathBuf> {
    let folders = all_include_folders(root);
    let found = folders.iter().any(|folder| folder.join(header).is_file());
    assert!(found, "{header} is in none of {folders:?}; run tools/install-cuda.sh again");
    folders
}
