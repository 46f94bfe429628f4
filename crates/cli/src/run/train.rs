//! `pleach train`: from arguments to a finished run.

use checkpoint::Committer;
use train::{Ending, Observer, Ports, Saving, Start, TensorSink};

use crate::arguments::TrainArguments;
use crate::check::verdict::{Planned, Verdict};
use crate::failure::Failure;
use crate::input;
use crate::input::run_source::RunSource;
use crate::input::text::Text;
use crate::run::once_per_run::OncePerRun;
use crate::run::process_ranks::ProcessRanks;
use crate::run::resume::resume;
use crate::run::run_folder::{RunFolder, WayOut, check_apart};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a signal.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    if let Some(folder) = &arguments.resume {
        return resume(arguments, folder);
    }
    let Some(from) = &arguments.from else {
        return Session::new(input::judged(&arguments.run, Planned::EveryBatch)?)?.run(arguments, Start::Seed);
    };
    let source = RunSource::open(from, &[], &[])?;
    let verdict = source.judged(&arguments.run)?;
    check_apart(&verdict.config.run, from)?;
    let session = Session::new(verdict)?;
    source.copy_tokenizer(&session.verdict.config.data.tokenizer, session.folder.path())?;
    session.run(arguments, Start::Weights(&source.weights))
}

/// A run that is about to start.
pub struct Session {
    /// The run.
    pub verdict: Verdict,
    /// What it learns from.
    pub text: Text,
    /// Where it writes.
    pub folder: RunFolder,
}

impl Session {
    /// A run that begins, in a folder that it may have.
    fn new(verdict: Verdict) -> Result<Session, Failure> {
        let text = Text::read(&verdict.config)?;
        let folder = RunFolder::open(&verdict.config.run, WayOut::OtherFolder)?;
        folder.check_done()?;
        Ok(Session { verdict, text, folder })
    }

    /// Runs from `start` to the end, and leaves in the folder what there is to leave.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run(&self, arguments: &TrainArguments, start: Start<'_>) -> Result<(), Failure> {
        let once = OncePerRun::prepare(self, arguments, start)?;
        let ending = self.run_ranks(&once.progress, &once.weights, start);
        once.conclude(ending)
    }

    /// Runs the ranks of this process, which commits the checkpoints of the run.
    fn run_ranks(
        &self,
        observer: &dyn Observer,
        weights: &dyn TensorSink,
        start: Start<'_>,
    ) -> Result<Ending, Failure> {
        let Session { verdict: Verdict { setup, config, .. }, text, folder } = self;
        let run = config.to_toml();
        let (every, data_xxh3) = (config.run.save_every, Some(text.hash()));
        let committer = Committer::new(&folder.store, 1);
        let saving = Some(Saving { every, run: &run, data_xxh3, ..Saving::with(&committer) });
        let (weights, evaluation) = (Some(weights), text.evaluation());
        let ports = Ports { start, saving, weights, evaluation, ..Ports::new(text.training(), observer) };
        ProcessRanks::open(config, setup).train_watched(ports)
    }
}
