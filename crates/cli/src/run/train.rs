//! `pleach train`: from arguments to a finished run.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{CheckpointFolder, Disk};
use train::Start;

use crate::arguments::TrainArguments;
use crate::check::verdict::{Planned, Verdict};
use crate::failure::Failure;
use crate::input;
use crate::input::run_source::RunSource;
use crate::input::text::Text;
use crate::processes::company::Company;
use crate::run::first_process;
use crate::run::other_process;
use crate::run::resume::resume;
use crate::run::run_folder::{CHECKPOINTS, RunFolder, WayOut, check_apart};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a signal.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    if let Some(folder) = &arguments.resume {
        return resume(arguments, folder);
    }
    let Some(from) = &arguments.from else {
        let verdict = input::judged(&arguments.run, Planned::EveryBatch)?;
        return Session::meet(verdict, "from the seed")?.run(arguments, Start::Seed, new_folder);
    };
    let source = RunSource::open(from, &[], &[])?;
    let verdict = source.judged(&arguments.run)?;
    check_apart(&verdict.config.run, from)?;
    let session = Session::meet(verdict, &format!("from the weights in {}", from.display()))?;
    session.run(arguments, Start::Weights(&source.weights), |verdict| {
        let folder = new_folder(verdict)?;
        source.copy_tokenizer(&verdict.config.data.tokenizer, folder.path())?;
        Ok(folder)
    })
}

/// The folder of a run that begins, if it may have it.
fn new_folder(verdict: &Verdict) -> Result<RunFolder, Failure> {
    let folder = RunFolder::open(&verdict.config.run, WayOut::OtherFolder)?;
    folder.check_done()?;
    Ok(folder)
}

/// A run that is about to start.
pub struct Session {
    /// The run.
    pub verdict: Verdict,
    /// What it learns from.
    pub text: Text,
    /// The processes of the run.
    pub company: Company,
}

impl Session {
    /// Reads the text and meets the other processes, which must start in the same way.
    ///
    /// # Errors
    /// Text that cannot be read; see [`Company::meet`].
    pub fn meet(verdict: Verdict, start: &str) -> Result<Session, Failure> {
        let text = Text::read(&verdict.config)?;
        Session::with_text(verdict, text, start)
    }

    /// As [`Session::meet`], with text that has been read.
    ///
    /// # Errors
    /// See [`Company::meet`].
    pub fn with_text(verdict: Verdict, text: Text, start: &str) -> Result<Session, Failure> {
        let company = Company::meet(&verdict.config, &verdict.setup, text.hash(), start)?;
        Ok(Session { verdict, text, company })
    }

    /// Runs from `start` to the end, and leaves in the folder what there is to leave. The first process opens the folder with `open`.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run(
        self,
        arguments: &TrainArguments,
        start: Start<'_>,
        open: impl FnOnce(&Verdict) -> Result<RunFolder, Failure>,
    ) -> Result<(), Failure> {
        let ended =
            self.company.once("the folder of the run", || open(&self.verdict)).and_then(|folder| match &folder {
                Some(folder) => first_process::run(&self, folder, arguments, start),
                None => other_process::run(&self, start),
            });
        self.company.leave(ended)
    }

    /// The folder of checkpoints, which all processes write to.
    pub fn checkpoints(&self) -> CheckpointFolder {
        let path: &Path = &self.verdict.config.run.folder;
        CheckpointFolder::new(&path.join(CHECKPOINTS), Arc::new(Disk))
    }
}
