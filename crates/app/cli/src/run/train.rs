//! `pleach train`: from arguments to a finished run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use checkpoint::{CheckpointFolder, Disk};
use train::Start;

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::folder::run_folder::{RunFolder, check_apart};
use crate::input;
use crate::messages::stderr::tell;
use crate::peer_memory::{Beginning, IsFound, PeerMemory};
use crate::places::kept_run::Earlier;
use crate::places::names::CHECKPOINTS;
use crate::places::own_places;
use crate::process_group::company::{Company, together};
use crate::process_group::meeting::Meeting;
use crate::process_group::several::Part;
use crate::run::first_process;
use crate::run::other_process;
use crate::run::resume::resume;
use crate::run::uploads::Uploads;
use crate::signals::interrupt::{self, AtOnce};
use crate::source::run_source::RunSource;
use crate::text::run_text::Text;
use crate::text::shared_text::OwnText;
use crate::verdict::{Planned, Verdict};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a signal.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    interrupt::survive_hangups()?;
    if let Some(folder) = &arguments.resume {
        return resume(arguments, folder);
    }
    let Some(from) = &arguments.from else {
        let verdict = input::judged(&arguments.run, Planned::EveryBatch)?;
        let open = |verdict: &Verdict| RunFolder::begin(&verdict.config.run, earlier(arguments));
        let begin = |session: &Session<'_>| session.run(arguments, Start::Seed, open);
        return Session::with(&verdict, "train from the seed", BTreeMap::new(), begin);
    };
    let source = RunSource::open(from, &[], &[])?;
    let verdict = source.judged(&arguments.run)?;
    check_apart(&verdict.config.run, from)?;
    Session::with(&verdict, "train from weights", source.inputs()?, |session| {
        session.run(arguments, Start::Weights(&source.weights), |verdict| {
            let folder = RunFolder::begin(&verdict.config.run, earlier(arguments))?;
            source.copy_tokenizer(&verdict.config.data.tokenizer, folder.path())?;
            Ok(folder)
        })
    })
}

/// [`TrainArguments::overwrite`] as a type.
fn earlier(arguments: &TrainArguments) -> Earlier {
    if arguments.overwrite { Earlier::Replaced } else { Earlier::Kept }
}

/// A run that is about to start.
pub struct Session<'a> {
    /// The run.
    pub verdict: &'a Verdict,
    /// The training text.
    pub text: &'a Text,
    /// The processes of the run.
    pub company: &'a Company,
    /// Signals, which end the process until the run hears them.
    pub signals: &'a AtOnce,
    /// The memory of hosts, where it is used.
    pub memory: Option<&'a PeerMemory>,
}

impl Session<'_> {
    /// Reads the text, meets the other processes, which must do the same `command` with the same `inputs`, and does
    /// `work`.
    ///
    /// # Errors
    /// Text that cannot be used, failures of other processes, and that of `work`.
    pub fn with(
        verdict: &Verdict,
        command: &str,
        inputs: BTreeMap<String, u64>,
        work: impl FnOnce(&Session<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Verdict { config, setup, .. } = verdict;
        // Text is read, and a tokenizer trained, before there is anything to keep.
        let signals = interrupt::ends_until_heard()?;
        let text = OwnText::read(&config.data)?;
        let (runs, programs) = (vec![config], vec![setup.fingerprint()]);
        let meeting = Meeting { command: command.into(), runs, programs, text: text.hash(), inputs };
        together(&meeting, |company| {
            company.check_memory(config, setup)?;
            let text = Text::new(config, text.tokenized(company)?)?;
            work(&Session { verdict, text: &text, company, signals: &signals, memory: None })
        })
        .map(|_done| ())
    }

    /// Runs from `start` to the end, and leaves in the folder what there is to leave. The first process opens the
    /// folder with `open`.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run(
        &self,
        arguments: &TrainArguments,
        start: Start<'_>,
        open: impl FnOnce(&Verdict) -> Result<RunFolder, Failure>,
    ) -> Result<(), Failure> {
        if !matches!(start, Start::Checkpoint(_)) {
            PeerMemory::check_fresh(self.company, &self.verdict.config)?;
        }
        let part = self.company.once("the folder of the run", || {
            let config = &self.verdict.config;
            own_places::check_outside(&config.run.folder, "--trace", arguments.trace.as_deref())?;
            let folder = open(self.verdict)?;
            own_places::check_inputs(folder.path(), arguments.run.file.as_deref(), config, earlier(arguments))?;
            Ok(folder)
        })?;
        let opened = match start {
            Start::Seed | Start::Weights(_) => {
                let run = (&self.verdict.config, &self.verdict.setup);
                PeerMemory::open(self.company, run, Beginning::Fresh, IsFound::No)?
            }
            Start::Checkpoint(_) => None,
        };
        let session = Session { memory: opened.as_ref().or(self.memory), ..*self };
        match part {
            Part::First(folder) => {
                let uploads = Uploads::begin(&self.verdict.config.run, &folder, start.steps())?;
                let ended = first_process::run(&session, &folder, arguments, (start, uploads.as_ref()));
                let ended = session.after(&ended).and(ended);
                match uploads {
                    Some(uploads) => uploads.finish(&folder, ended),
                    None => ended,
                }
            }
            Part::Other(several) => {
                let ended = other_process::run(&session, several, arguments, start);
                session.after(&ended)?;
                ended
            }
        }
    }

    /// Forgets the memory of hosts once all processes have ended well; else process 0 says that state is left there.
    fn after(&self, ended: &Result<(), Failure>) -> Result<(), Failure> {
        let Some(memory) = self.memory else { return Ok(()) };
        match ended {
            Ok(()) | Err(Failure::Interrupted { .. }) => {
                self.company.once("the end of checkpoints in memory", || Ok(()))?;
                memory.forget();
            }
            Err(_) if self.company.is_first() => {
                if let Some(left) = memory.left() {
                    tell(&left);
                }
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// The folder of checkpoints, which all processes write to.
    pub fn checkpoints(&self) -> CheckpointFolder {
        let path: &Path = &self.verdict.config.run.folder;
        CheckpointFolder::new(&path.join(CHECKPOINTS), Arc::new(Disk))
    }
}
