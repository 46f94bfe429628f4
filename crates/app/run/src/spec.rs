//! The specification of a training, and the origin of its weights.

use std::path::PathBuf;

use crate::places::kept_run::Earlier;
use crate::run_file::RunFile;

/// A training that a user asks for.
#[derive(Clone, Debug, Default)]
pub struct TrainSpec {
    /// The run; with [`Origin::Checkpoint`], changes of the run that is resumed.
    pub run: RunFile,
    pub origin: Origin,
    /// The treatment of a finished run in the folder.
    pub earlier: Earlier,
    /// Takes the time of every instruction of the last step.
    pub trace: Option<PathBuf>,
}

/// Where the weights before the first step are from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// `train.seed`.
    #[default]
    Seed,
    /// A Hugging Face folder, a run folder or a checkpoint.
    Weights(PathBuf),
    /// The newest valid checkpoint of the run in this folder, or at this address of a store.
    Checkpoint(PathBuf),
}
