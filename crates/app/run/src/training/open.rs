//! A run, from what was asked for to its end.

use std::collections::BTreeMap;

use train::Start;

use crate::failure::Failure;
use crate::folder::run_folder::{RunFolder, check_apart};
use crate::signals::interrupt;
use crate::source::run_source::RunSource;
use crate::spec::{Origin, TrainSpec};
use crate::training::observer::Observer;
use crate::training::resume::Resume;
use crate::training::session::{RunRequest, Session};
use crate::training::train::train;
use crate::verdict::{Planned, Verdict};

/// A run that can start: its file is legal, its programs are verified, and their memory fits.
pub struct Run {
    spec: TrainSpec,
    start_from: StartFrom,
}

/// The start of a run.
enum StartFrom {
    Seed(Verdict),
    Weights(Verdict, Box<RunSource>),
    Checkpoint(Resume),
}

impl Run {
    /// Reads the run, and checks it; nothing is written yet.
    ///
    /// # Errors
    /// Input that cannot be used.
    pub fn open(spec: TrainSpec) -> Result<Run, Failure> {
        interrupt::survive_hangups()?;
        let start_from = match &spec.origin {
            Origin::Seed => StartFrom::Seed(spec.run.judged(Planned::EveryBatch)?),
            Origin::Weights(from) => {
                let source = RunSource::open(from, &[], &[])?;
                let verdict = source.judged(&spec.run)?;
                check_apart(&verdict.config.run, from)?;
                StartFrom::Weights(verdict, Box::new(source))
            }
            Origin::Checkpoint(folder) => StartFrom::Checkpoint(Resume::open(folder, &spec.run.overrides())?),
        };
        Ok(Run { spec, start_from })
    }

    /// Trains to the last step, and leaves the weights, checkpoints and records in the folder of the run. `observer`
    /// hears of its steps. Ctrl-C and SIGTERM end the run after the current step, with a checkpoint.
    ///
    /// All processes that a launcher started call it.
    ///
    /// # Errors
    /// Input that cannot be used, the failure of a rank, a file that cannot be written, or a signal.
    pub fn train(self, observer: &dyn Observer) -> Result<(), Failure> {
        let Run { spec, start_from } = self;
        let request = RunRequest { spec: &spec, observer };
        match start_from {
            StartFrom::Seed(verdict) => {
                let open = |verdict: &Verdict| RunFolder::begin(&verdict.config.run, spec.earlier);
                let begin = |session: &Session<'_>| train(session, Start::Seed, open);
                Session::with(request, &verdict, "train from the seed", BTreeMap::new(), begin)
            }
            StartFrom::Weights(verdict, source) => {
                let open = |verdict: &Verdict| {
                    let folder = RunFolder::begin(&verdict.config.run, spec.earlier)?;
                    source.copy_tokenizer(&verdict.config.data.tokenizer, folder.path())?;
                    Ok(folder)
                };
                let begin = |session: &Session<'_>| train(session, Start::Weights(&source.weights), open);
                Session::with(request, &verdict, "train from weights", source.inputs()?, begin)
            }
            StartFrom::Checkpoint(resume) => resume.train(request),
        }
    }
}
