//! Paths that name a checkpoint: its folder, or the folder of a run for the newest one.

use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, CheckpointError, MANIFEST, committed, named_steps};
use stores::Address;

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::places::names::CHECKPOINTS;
use crate::places::unfinished::tell_unfinished;

/// The folder of the checkpoint that `path` names.
///
/// # Errors
/// A folder without one.
pub fn checkpoint_path(path: &Path) -> Result<PathBuf, Failure> {
    check_local(path)?;
    if path.join(MANIFEST).is_file() {
        return Ok(path.to_path_buf());
    }
    if named_steps(path).is_some() && path.is_dir() {
        return Err(Failure::Input(format!(
            "{} has no {MANIFEST}: its save or its copy has not ended; name the folder of the run to use its newest checkpoint",
            path.display()
        )));
    }
    tell_unfinished(path);
    let checkpoints = path.join(CHECKPOINTS);
    let folder = if checkpoints.is_dir() { checkpoints } else { path.to_path_buf() };
    match committed(&folder)?.into_iter().next() {
        Some(newest) => Ok(newest.path),
        None => Err(CheckpointError::None { folder }.into()),
    }
}

/// The newest checkpoint of the run in the folder `run` of which every byte has its hash.
/// Prints those that are damaged.
///
/// # Errors
/// A folder that cannot be read.
pub fn newest_sound(run: &Path) -> Result<Option<PathBuf>, Failure> {
    tell_unfinished(run);
    for found in committed(&run.join(CHECKPOINTS))? {
        let damage = Checkpoint::open(&found.path).map(|checkpoint| checkpoint.verify().into_iter().next());
        match damage.unwrap_or_else(Some) {
            None => return Ok(Some(found.path)),
            Some(error) => tell(&format!("{error}; an earlier checkpoint is used\n")),
        }
    }
    Ok(None)
}

/// The folder of the run of which `path` is a part: its checkpoints, one of them, or a file.
pub fn run_around(path: &Path) -> Option<&Path> {
    let is_within = path.ends_with(CHECKPOINTS) || path.is_file();
    let run = if is_within { path.parent() } else { run_folder_of(path) };
    let run = run.map(|run| if run.as_os_str().is_empty() { Path::new(".") } else { run });
    run.filter(|run| run.join(CHECKPOINTS).is_dir())
}

/// The folder of the run that wrote the checkpoint at `path`, if it is still there.
pub fn run_folder_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| folder.ends_with(CHECKPOINTS)).and_then(Path::parent)
}

/// Refuses an address where a folder of this machine is read.
///
/// # Errors
/// An address, with the command that downloads it.
pub fn check_local(path: &Path) -> Result<(), Failure> {
    match Address::parse(&path.to_string_lossy()) {
        None => Ok(()),
        Some(Ok(address)) => Err(Failure::Input(format!(
            "{address} must be a folder of this machine; `pleach fetch {address} --out FOLDER` downloads the run"
        ))),
        Some(Err(error)) => Err(Failure::Input(error.to_string())),
    }
}
