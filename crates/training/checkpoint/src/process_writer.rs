//! The files of a process's ranks in checkpoints that are being written.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sync::lock;

use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::{CheckpointFolder, SavedIn};
use crate::manifest::RunState;
use crate::piece_file::{PieceEntry, PieceFile};
use crate::process_pieces::{ProcessPieces, WrittenFile};

/// Writes one file per rank of this process, from as many threads as there are ranks. It takes no lock of the folder,
/// removes nothing and commits
/// nothing.
#[derive(Debug)]
pub struct ProcessWriter {
    num_ranks: usize,
    /// By steps, from the first rank that begins to the last one that is done: a rank may begin the next checkpoint
    /// before another has begun this
    /// one.
    current: Mutex<BTreeMap<u32, Progress>>,
}

#[derive(Debug)]
struct Progress {
    state: RunState,
    data: SavedIn,
    first_rank: usize,
    /// Ranks that are not done.
    awaited: usize,
    files: Result<Vec<WrittenFile>, CheckpointError>,
}

impl ProcessWriter {
    /// A writer for the `num_ranks` ranks of this process.
    pub fn new(num_ranks: usize) -> ProcessWriter {
        ProcessWriter { num_ranks, current: Mutex::default() }
    }

    /// Makes the file of `rank` for `entries` in the checkpoint of `state` in `folder`; a rank without entries has no
    /// file.
    ///
    /// # Errors
    /// A disk that refuses. [`ProcessWriter::finish`] takes the error, so that every rank gets there.
    pub fn begin(
        &self,
        folder: &CheckpointFolder,
        state: &RunState,
        rank: usize,
        entries: &[PieceEntry],
    ) -> Result<Option<PieceFile>, CheckpointError> {
        // The first rank of any process makes the folder.
        let first = || Progress {
            state: state.clone(),
            data: folder.data(),
            first_rank: rank,
            awaited: self.num_ranks,
            files: folder.make_partial(state.steps).map(|()| vec![]),
        };
        {
            let mut current = lock(&self.current);
            let progress = current.entry(state.steps).or_insert_with(first);
            progress.first_rank = progress.first_rank.min(rank);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let path = folder.partial(state.steps).join(format!("rank-{rank:05}.safetensors"));
        let create = |len_bytes| folder.storage().create(&path, len_bytes);
        PieceFile::create(path.clone(), entries, create).map(Some)
    }

    /// Brings a rank's file to the disk, or takes the error of a missing one. The last rank of this process gets the
    /// pieces of all its ranks, for [`PieceCollector::deliver`](crate::PieceCollector::deliver); the others get
    /// nothing.
    pub fn finish(
        &self,
        steps: u32,
        file: Result<Option<PieceFile>, CheckpointError>,
        entries: &[PieceEntry],
    ) -> Option<ProcessPieces> {
        let written = file.and_then(|file| file.map(|file| file.finish(entries)).transpose());
        let mut current = lock(&self.current);
        let progress = current.get_mut(&steps)?;
        match (written, &mut progress.files) {
            (Ok(written), Ok(files)) => files.extend(written),
            (Err(error), Ok(_)) => progress.files = Err(error),
            // The first failure counts.
            (Ok(_) | Err(_), Err(_)) => {}
        }
        progress.awaited = progress.awaited.saturating_sub(1);
        if progress.awaited > 0 {
            return None;
        }
        let Progress { state, data, first_rank, files, .. } = current.remove(&steps)?;
        Some(ProcessPieces { state, data, first_rank, files })
    }
}
