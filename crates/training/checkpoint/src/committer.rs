//! The end of a checkpoint: one process gathers the records of all processes and commits.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sync::lock;

use crate::checkpoint_folder::CheckpointFolder;
use crate::process_pieces::ProcessPieces;
use crate::store::{Finished, Store};

/// Brings the records of a process's pieces to the process that commits: by a call there, as bytes from elsewhere.
pub trait PieceCollector: Sync {
    /// Takes the pieces of one process, once they are on the disk. Returns the result of the checkpoint where this call
    /// commits it.
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished>;
}

/// Commits a checkpoint as soon as `num_processes` processes have delivered. It lives in the process that has the lock
/// of the folder.
#[derive(Debug)]
pub struct Committer<'a> {
    store: &'a Store,
    num_processes: usize,
    /// Deliveries by steps: a process may be a checkpoint ahead.
    arrived: Mutex<BTreeMap<u32, Vec<ProcessPieces>>>,
}

impl<'a> Committer<'a> {
    /// Commits to `store`.
    pub fn new(store: &'a Store, num_processes: usize) -> Committer<'a> {
        Committer { store, num_processes, arrived: Mutex::default() }
    }

    /// The folder that all processes write to.
    pub fn folder(&self) -> &'a CheckpointFolder {
        self.store.folder()
    }
}

impl PieceCollector for Committer<'_> {
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished> {
        let steps = pieces.steps();
        let all = {
            let mut arrived = lock(&self.arrived);
            let of_step = arrived.entry(steps).or_default();
            of_step.push(pieces);
            if of_step.len() < self.num_processes {
                return None;
            }
            arrived.remove(&steps)?
        };
        Some(self.store.commit(all))
    }
}
