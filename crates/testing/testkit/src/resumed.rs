//! A run in parts: each resumes from the checkpoint of the one before, under a layout of its own.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, Committer, Disk, Retention, Store, committed};
use config::{BatchOrigin, TrainSpec};
use prove::{First, NoWatch, Outcome, ProofError, RunPart, Watch, outcome_of_run};
use train::{Saving, Start, TokenSource};

use crate::layout::Layout;
use crate::wrapped_engine::{WrapRank, WrappedEngine};

/// Keeps all that parts leave.
const RETENTION: Retention = Retention { newest: usize::MAX, every: 0, best: 0 };

/// One part of a run.
#[derive(Clone, Debug)]
pub struct LayoutPart {
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

/// `train` as resumed from `checkpoint`.
pub fn resumed_spec(train: &TrainSpec, checkpoint: &Checkpoint) -> TrainSpec {
    let state = checkpoint.state();
    TrainSpec { batch_origin: BatchOrigin { steps: state.steps, sequences: state.sequences }, ..train.clone() }
}

/// Input, engine and observer of a part of a run.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub tokens: &'a dyn TokenSource,
    /// Engine of each rank.
    pub wrap: &'a WrapRank<'a>,
    /// Sees every rank after each of its instructions.
    pub watch: &'a dyn Watch,
}

impl<'a> Surroundings<'a> {
    /// Threads as they are, unseen.
    pub fn plain(tokens: &'a dyn TokenSource) -> Surroundings<'a> {
        Surroundings { tokens, wrap: &|_, rank| rank, watch: &NoWatch }
    }
}

/// The outcome of all parts, as if they were one run; see [`Outcome::followed_by`]. Each part ends with a
/// checkpoint in `folder`, and the first one begins where the newest in it ended, if there is one.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_of_parts(parts: &[LayoutPart], tokens: &dyn TokenSource, folder: &Path) -> Result<Outcome, ProofError> {
    let mut whole = Outcome::default();
    for part in parts {
        whole = whole.followed_by(outcome_of_part(part, folder, Surroundings::plain(tokens))?);
    }
    Ok(whole)
}

/// The outcome of one part, which begins where the newest checkpoint in `folder` ended, if there is one, and ends with
/// one.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_of_part(
    LayoutPart { layout, until }: &LayoutPart,
    folder: &Path,
    Surroundings { tokens, wrap, watch }: Surroundings<'_>,
) -> Result<Outcome, ProofError> {
    let store = Store::open(folder, Arc::new(Disk), RETENTION)?;
    let before = if committed(folder)?.is_empty() { None } else { Some(newest(folder)?) };
    let train = before.as_ref().map_or(layout.train.clone(), |before| resumed_spec(&layout.train, before));
    let setup = Layout { train, ..layout.clone() }.setup()?;
    let start = before.as_ref().map_or(Start::Seed, Start::Checkpoint);
    let committer = Committer::new(&store, 1);
    let saving = Some(Saving::with(&committer));
    let first = First { steps: until.saturating_sub(start.steps()), watch };
    outcome_of_run(&setup, &WrappedEngine::new(&setup, wrap), tokens, RunPart { start, saving, first })
}
