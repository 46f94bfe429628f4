//! The folder with NVIDIA's wheels, which PLEACH_CUDA names.

use std::path::{Path, PathBuf};

/// The folder.
pub fn folder() -> PathBuf {
    let folder = std::env::var_os("PLEACH_CUDA");
    folder.expect("PLEACH_CUDA must name the folder of NVIDIA's wheels: run tools/install-cuda.sh").into()
}

/// The folders of headers below `root`, with `header` in one of them.
pub fn include_folders(root: &Path, header: &str) -> Vec<PathBuf> {
    let packages = std::fs::read_dir(root.join("lib")).into_iter().flatten().flatten();
    let roots: Vec<PathBuf> = packages.map(|entry| entry.path().join("site-packages")).chain([root.into()]).collect();
    let below = ["nvidia/cu13/include", "nvidia/cudnn/include", "nvidia/nccl/include", "include"];
    let folders = roots.iter().flat_map(|root| below.iter().map(move |below| root.join(below)));
    let folders: Vec<PathBuf> = folders.filter(|folder| folder.is_dir()).collect();
    let found = folders.iter().any(|folder| folder.join(header).is_file());
    assert!(found, "{header} is in none of {folders:?}; run tools/install-cuda.sh again");
    folders
}
