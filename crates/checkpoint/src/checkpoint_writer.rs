//! A checkpoint in the making. Ranks write a file each; the last one to be done commits.
//!
//! The order makes a checkpoint whole or absent, whenever the process ends: the data are on the disk before the manifest, the manifest before the
//! folder's names, those before the folder gets its own name, and that before `latest` says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checkpoint_error::CheckpointError;
use crate::disk::Storage;
use crate::manifest::{FORMAT, MANIFEST, Manifest, RunState, TensorRecord};
use crate::piece_file::{PieceEntry, PieceFile, Written};
use crate::store::{LATEST, folder_name, partial_name};

/// Takes the files of one checkpoint, from as many threads as there are files. Dropped before the commit, it leaves nothing.
#[derive(Debug)]
pub struct CheckpointWriter {
    folder: PathBuf,
    storage: Arc<dyn Storage>,
    state: RunState,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// Files that are still awaited.
    awaited: usize,
    /// Those that are there, by their names.
    written: BTreeMap<String, (Written, Vec<PieceEntry>)>,
    failure: Option<CheckpointError>,
    is_committed: bool,
}

/// A checkpoint that has just been committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its folder.
    pub path: PathBuf,
    /// Steps that were done.
    pub steps: u32,
    /// Bytes of its data.
    pub data_bytes: u64,
}

impl CheckpointWriter {
    /// Begins one of `num_files` files in `folder`. A failure is kept for the end, so that every rank gets there.
    pub(crate) fn begin(
        folder: &Path,
        storage: Arc<dyn Storage>,
        state: RunState,
        num_files: usize,
    ) -> CheckpointWriter {
        let (written, failure) = (BTreeMap::new(), None);
        let progress = Progress { awaited: num_files, written, failure, is_committed: false };
        let writer = CheckpointWriter { folder: folder.into(), storage, state, progress: Mutex::new(progress) };
        let partial = writer.partial();
        if let Err(reason) = writer.storage.create_folder(&partial) {
            writer.lock().failure = Some(CheckpointError::Write { path: partial, reason });
        }
        writer
    }

    /// Steps of the state that it takes.
    pub fn steps(&self) -> u32 {
        self.state.steps
    }

    /// The file of rank `rank`, for `entries`; a rank without any has none.
    ///
    /// # Errors
    /// A disk that refuses.
    pub fn file(&self, rank: usize, entries: &[PieceEntry]) -> Result<Option<PieceFile>, CheckpointError> {
        if entries.is_empty() {
            return Ok(None);
        }
        let path = self.partial().join(format!("rank-{rank:05}.safetensors"));
        PieceFile::create(path.clone(), entries, |len_bytes| self.storage.create(&path, len_bytes)).map(Some)
    }

    /// Takes a rank's file, with the entries that it was made for, or why there is none. The last of all ranks learns what became of the
    /// checkpoint; the others are told nothing.
    pub(crate) fn finish(
        &self,
        file: Result<Option<PieceFile>, CheckpointError>,
        entries: &[PieceEntry],
    ) -> Option<Result<Committed, CheckpointError>> {
        let written = file.and_then(|file| file.map(PieceFile::finish).transpose());
        let mut progress = self.lock();
        match written {
            Ok(None) => {}
            Ok(Some(written)) => {
                progress.written.insert(written.file.name.clone(), (written, entries.to_vec()));
            }
            Err(error) => progress.failure = progress.failure.take().or(Some(error)),
        }
        progress.awaited = progress.awaited.saturating_sub(1);
        if progress.awaited > 0 {
            return None;
        }
        let committed = match progress.failure.take() {
            Some(failure) => Err(failure),
            None => self.commit(&mut progress),
        };
        Some(committed)
    }

    fn commit(&self, progress: &mut Progress) -> Result<Committed, CheckpointError> {
        let manifest = self.manifest(&progress.written);
        if let Some((tensor, missing, len)) = manifest.incomplete() {
            return Err(CheckpointError::Incomplete { tensor: tensor.into(), missing, len });
        }
        let (partial, path) = (self.partial(), self.folder.join(folder_name(self.state.steps)));
        if path.exists() {
            return Err(CheckpointError::Exists { path });
        }
        let storage = &*self.storage;
        let (file, text) = (partial.join(MANIFEST), manifest.to_bytes().map_err(std::io::Error::from));
        tried(&file, text.and_then(|text| write_new(storage, &file, &text)))?;
        tried(&partial, storage.sync_folder(&partial))?;
        tried(&path, storage.rename(&partial, &path))?;
        progress.is_committed = true;
        tried(&path, storage.sync_folder(&self.folder))?;
        self.point_to(&path)?;
        Ok(Committed { path, steps: self.state.steps, data_bytes: manifest.data_bytes() })
    }

    /// What the files hold, in the order of their names.
    fn manifest(&self, written: &BTreeMap<String, (Written, Vec<PieceEntry>)>) -> Manifest {
        let (build, state) = (env!("CARGO_PKG_VERSION").to_string(), self.state.clone());
        let mut manifest = Manifest { format: FORMAT, build, state, files: vec![], tensors: BTreeMap::new() };
        for (number, (written, entries)) in written.values().enumerate() {
            manifest.files.push(written.file.clone());
            for (entry, piece) in written.records(entries, number) {
                let new = || TensorRecord { dtype: "F32".into(), shape: entry.shape.clone(), pieces: vec![] };
                manifest.tensors.entry(entry.tensor.clone()).or_insert_with(new).pieces.push(piece);
            }
        }
        manifest
    }

    /// Makes `latest` name the checkpoint at `path`.
    fn point_to(&self, path: &Path) -> Result<(), CheckpointError> {
        let (latest, storage) = (self.folder.join(LATEST), &*self.storage);
        let partial = self.partial_latest();
        let name = format!("{}\n", folder_name(self.state.steps));
        // One that a killed process left would be in the way; if there is none, so much the better.
        let _ = std::fs::remove_file(&partial);
        tried(&partial, write_new(storage, &partial, name.as_bytes()))?;
        tried(&latest, storage.rename(&partial, &latest))?;
        tried(path, storage.sync_folder(&self.folder))
    }

    fn partial(&self) -> PathBuf {
        self.folder.join(partial_name(self.state.steps))
    }

    fn partial_latest(&self) -> PathBuf {
        self.folder.join(format!(".{LATEST}.partial"))
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // A thread that panicked while it held the lock has not delivered its file, so nothing is committed.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.lock().is_committed {
            // If it cannot be removed, the next run that writes here removes it.
            let _ = self.storage.remove_folder(&self.partial());
        }
    }
}

fn write_new(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = storage.create(path, bytes.len() as u64)?;
    file.append(bytes)?;
    file.sync()
}

fn tried(path: &Path, done: std::io::Result<()>) -> Result<(), CheckpointError> {
    done.map_err(|reason| CheckpointError::Write { path: path.into(), reason })
}
