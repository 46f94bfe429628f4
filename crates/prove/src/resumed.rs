//! A run in parts: each goes on from the checkpoint that the one before left, under a layout of its own.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, Disk, Retention, Store, committed};
use config::{BatchOrigin, TrainSpec};
use train::{Saving, Start, TokenSource};

use crate::distance::Outcome;
use crate::runner::{First, Layout, Leg, ProofError, outcome_of_run, thread_engine};
use crate::watch::{Nobody, Watch};

/// Keeps all that parts leave.
const RETENTION: Retention = Retention { newest: usize::MAX, every: 0, best: 0 };

/// One part of a run.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The layout.
    pub layout: Layout,
    /// Steps that are done when it ends.
    pub until: u32,
}

/// The newest checkpoint in `folder`.
///
/// # Errors
/// None that is sound.
pub fn newest(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    match committed(folder)?.first() {
        Some(found) => Checkpoint::open(&found.path),
        None => Err(CheckpointError::None { folder: folder.to_path_buf() }),
    }
}

/// `train` as it goes on from `checkpoint`.
pub fn going_on(train: &TrainSpec, checkpoint: &Checkpoint) -> TrainSpec {
    let state = checkpoint.state();
    TrainSpec { batch_origin: BatchOrigin { steps: state.steps, sequences: state.sequences }, ..train.clone() }
}

/// What the parts together leave, as if they were one run: losses and norms of all steps, the first gradients of the first part, the weights of
/// the last. Each part ends with a checkpoint in `folder`, and the first one begins where the newest in it ended, if there is one.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_of_legs(parts: &[Stretch], tokens: &dyn TokenSource, folder: &Path) -> Result<Outcome, ProofError> {
    outcome_of_legs_watched(parts, tokens, folder, &Nobody)
}

/// As [`outcome_of_legs`]; `watch` sees every rank after each of its instructions.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_of_legs_watched(
    parts: &[Stretch],
    tokens: &dyn TokenSource,
    folder: &Path,
    watch: &dyn Watch,
) -> Result<Outcome, ProofError> {
    let mut whole = Outcome::default();
    for Stretch { layout, until } in parts {
        let store = Store::open(folder, Arc::new(Disk), RETENTION)?;
        let before = if committed(folder)?.is_empty() { None } else { Some(newest(folder)?) };
        let train = before.as_ref().map_or(layout.train.clone(), |before| going_on(&layout.train, before));
        let setup = Layout { train, ..layout.clone() }.setup()?;
        let start = before.as_ref().map_or(Start::Seed, Start::Checkpoint);
        let saving = Some(Saving { store: &store, every: 0, run: "", data_xxh3: None });
        let first = First { steps: until.saturating_sub(start.steps()), watch };
        let part = outcome_of_run(&setup, &thread_engine(&setup), tokens, Leg { start, saving, first })?;
        whole.losses.extend(part.losses);
        whole.norms.extend(part.norms);
        whole.scaling.extend(part.scaling);
        whole.weights = part.weights;
        if whole.gradients.is_empty() {
            whole.gradients = part.gradients;
        }
    }
    Ok(whole)
}
