//! The end of a checkpoint: one process gathers the records of all processes and commits.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sync::lock;

use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::{CheckpointFolder, SavedIn};
use crate::process_pieces::ProcessPieces;
use crate::store::{Finished, Store};

/// Brings the records of a process's pieces to the process that commits: by a call there, as bytes from elsewhere.
pub trait PieceCollector: Sync {
    /// Takes the pieces of one process, once they are on the disk. Returns the result of the checkpoint where this call
    /// commits it.
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished>;

    /// Adds the held-out loss that was measured after `steps` steps to their checkpoint on the disk. It may have been
    /// committed before the measurement, or be on its way. Called by rank 0 alone.
    ///
    /// # Errors
    /// A disk that refuses; the checkpoint stays as it was committed.
    fn measured(&self, steps: u32, held_out_loss: f64) -> Result<(), CheckpointError>;
}

/// Commits a checkpoint as soon as `num_processes` processes have delivered. It lives in the process that has the lock
/// of the folder.
#[derive(Debug)]
pub struct Committer<'a> {
    store: &'a Store,
    /// The manifests of checkpoints in memory, where there may be any.
    in_memory: Option<&'a Store>,
    num_processes: usize,
    /// Deliveries by steps: a process may be a checkpoint ahead.
    arrived: Mutex<BTreeMap<u32, Vec<ProcessPieces>>>,
    /// Held-out losses of checkpoints that are not committed yet, by steps. Locked during a commit, so that a loss is
    /// in the manifest either by the commit or after it.
    losses: Mutex<BTreeMap<u32, f64>>,
}

impl<'a> Committer<'a> {
    /// Commits to `store`.
    pub fn new(store: &'a Store, num_processes: usize) -> Committer<'a> {
        Committer { store, in_memory: None, num_processes, arrived: Mutex::default(), losses: Mutex::default() }
    }

    /// The same, which commits checkpoints in memory to `manifests`.
    #[must_use]
    pub fn with_memory(self, manifests: Option<&'a Store>) -> Committer<'a> {
        Committer { in_memory: manifests, ..self }
    }

    /// The folder that all processes write to.
    pub fn folder(&self) -> &'a CheckpointFolder {
        self.store.folder()
    }
}

impl PieceCollector for Committer<'_> {
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished> {
        let (steps, data) = (pieces.steps(), pieces.data());
        let mut all = {
            let mut arrived = lock(&self.arrived);
            let of_step = arrived.entry(steps).or_default();
            of_step.push(pieces);
            if of_step.len() < self.num_processes {
                return None;
            }
            arrived.remove(&steps)?
        };
        let store = match data {
            SavedIn::Disk => Some(self.store),
            SavedIn::Memory => self.in_memory,
        };
        let mut losses = lock(&self.losses);
        if let Some(loss) = losses.remove(&steps) {
            all.iter_mut().for_each(|pieces| pieces.state.held_out_loss = Some(loss));
        }
        let refused = || CheckpointError::Process("this run has no checkpoints in memory".into());
        Some(store.map_or_else(|| Finished { outcome: Err(refused()), not_retired: None }, |store| store.commit(all)))
    }

    fn measured(&self, steps: u32, held_out_loss: f64) -> Result<(), CheckpointError> {
        let mut losses = lock(&self.losses);
        if !self.store.add_held_out_loss(steps, held_out_loss)? {
            losses.insert(steps, held_out_loss);
        }
        Ok(())
    }
}
