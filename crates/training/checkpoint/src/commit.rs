//! The commit of a checkpoint whose pieces are all on the disk.
//!
//! The order makes a checkpoint whole or absent, whenever the process ends: the data are on the disk before the
//! manifest, the manifest before the
//! folder's names, those before the folder gets its own name, and that before `latest` says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::CheckpointFolder;
use crate::disk::Storage;
use crate::manifest::{FORMAT, MANIFEST, Manifest, RunState, TensorRecord};
use crate::process_pieces::{ProcessPieces, WrittenFile};
use crate::step_names::{LATEST, folder_name};

/// A checkpoint that has just been committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its folder.
    pub path: PathBuf,
    /// Steps that were done.
    pub steps: u32,
    pub data_bytes: u64,
}

/// Commits the pieces of all processes of a run, at least one.
///
/// # Errors
/// The first failure of a process, a tensor that is not whole, a checkpoint that is there already, or a disk that
/// refuses.
pub(crate) fn commit(
    folder: &CheckpointFolder,
    mut processes: Vec<ProcessPieces>,
) -> Result<Committed, CheckpointError> {
    // The state is that of the first rank's process.
    processes.sort_by_key(|process| process.first_rank);
    let Some(state) = processes.first().map(|process| process.state.clone()) else {
        return Err(CheckpointError::Process("no process has delivered its pieces".into()));
    };
    let mut files = Vec::new();
    for process in processes {
        files.extend(process.files?);
    }
    let manifest = manifest(state, files);
    if let Some((tensor, missing, len)) = manifest.incomplete() {
        return Err(CheckpointError::Incomplete { tensor: tensor.into(), missing, len });
    }
    let steps = manifest.state.steps;
    let (partial, path) = (folder.partial(steps), folder.committed(steps));
    if path.exists() {
        return Err(CheckpointError::Exists { path });
    }
    let (file, text) = (partial.join(MANIFEST), manifest.to_bytes().map_err(std::io::Error::from));
    tried(&file, text.and_then(|text| write_new(folder.storage(), &file, &text)))?;
    give_name(folder, &partial, steps)?;
    Ok(Committed { path, steps, data_bytes: manifest.data_bytes() })
}

/// Replaces the manifest of a committed checkpoint by `manifest`, which has the same files: at any moment one of the
/// two is there.
///
/// # Errors
/// A disk that refuses.
pub(crate) fn replace_manifest(folder: &CheckpointFolder, manifest: &Manifest) -> Result<(), CheckpointError> {
    let path = folder.committed(manifest.state.steps);
    let (file, partial) = (path.join(MANIFEST), path.join(format!(".{MANIFEST}.partial")));
    let text = manifest.to_bytes().map_err(std::io::Error::from);
    replace(folder.storage(), (&partial, &file), &tried(&file, text)?)?;
    tried(&path, folder.storage().sync_folder(&path))
}

/// Gives the folder `draft`, whose files are all on the disk, the name of the checkpoint after `steps` steps, and makes
/// `latest` say so. Returns its path.
///
/// # Errors
/// A disk that refuses.
pub(crate) fn give_name(folder: &CheckpointFolder, draft: &Path, steps: u32) -> Result<PathBuf, CheckpointError> {
    let (path, storage) = (folder.committed(steps), folder.storage());
    tried(draft, storage.sync_folder(draft))?;
    tried(&path, storage.rename(draft, &path))?;
    tried(&path, storage.sync_folder(folder.path()))?;
    point_to(folder, steps)?;
    Ok(path)
}

/// The manifest of these files, in the order of their names.
fn manifest(state: RunState, mut files: Vec<WrittenFile>) -> Manifest {
    files.sort_by(|a, b| a.record.name.cmp(&b.record.name));
    let build = env!("CARGO_PKG_VERSION").to_string();
    let mut manifest = Manifest { format: FORMAT, build, state, files: vec![], tensors: BTreeMap::new() };
    for (number, WrittenFile { record, pieces }) in files.into_iter().enumerate() {
        manifest.files.push(record);
        for piece in pieces {
            let (tensor, shape, piece) = piece.into_record(number);
            let new = || TensorRecord { dtype: "F32".into(), shape, pieces: vec![] };
            manifest.tensors.entry(tensor).or_insert_with(new).pieces.push(piece);
        }
    }
    manifest
}

/// Makes `latest` name the checkpoint after `steps` steps.
fn point_to(folder: &CheckpointFolder, steps: u32) -> Result<(), CheckpointError> {
    let (latest, storage) = (folder.path().join(LATEST), folder.storage());
    let partial = folder.path().join(format!(".{LATEST}.partial"));
    let name = format!("{}\n", folder_name(steps));
    replace(storage, (&partial, &latest), name.as_bytes())?;
    tried(&folder.committed(steps), storage.sync_folder(folder.path()))
}

/// Writes `bytes` to `partial` and gives that the name `path`.
fn replace(storage: &dyn Storage, (partial, path): (&Path, &Path), bytes: &[u8]) -> Result<(), CheckpointError> {
    // One that a killed process left would be in the way; its absence is not an error.
    let _ = std::fs::remove_file(partial);
    tried(partial, write_new(storage, partial, bytes))?;
    tried(path, storage.rename(partial, path))
}

fn write_new(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = storage.create(path, bytes.len() as u64)?;
    file.append(bytes)?;
    file.sync()
}

fn tried<T>(path: &Path, done: std::io::Result<T>) -> Result<T, CheckpointError> {
    done.map_err(|reason| CheckpointError::Write { path: path.into(), reason })
}
