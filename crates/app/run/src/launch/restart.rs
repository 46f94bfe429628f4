//! The command after a failure, and whether starting it again makes sense.

use std::fmt;
use std::path::{Path, PathBuf};

use config::{KeptRun, KeptRunFile, RunConfig, Secret, Trusted};

use crate::failure::Failure;
use crate::launch::spec::{Language, Training};
use crate::layout::changes::with_changes;
use crate::places::kept_run_file::kept_run_file;
use crate::places::names::RUN_FILE;
use crate::places::newest_checkpoint::newest_checkpoint;
use crate::spec::{Origin, TrainSpec};
use crate::store::settings::RetryTime;
use crate::store::stored::{Described, described};

/// The store of a run is asked for its folder only; the processes wait for it longer.
const STORE: RetryTime = RetryTime::InBackground(20.0);

/// How a command of pleach is started again.
#[derive(Debug)]
pub enum Restart {
    /// As before; how far it has come is not known.
    Same,
    /// As before: it resumes the run in this folder by itself.
    Resuming {
        /// The run's folder.
        folder: PathBuf,
        /// Changed keys of its run file.
        overrides: Vec<String>,
        /// The run file that its store has; the folder may lack one before the first start.
        stored: Option<KeptRunFile>,
    },
    /// A run that trains resumes from its newest checkpoint, once it has one.
    Training {
        /// Its folder.
        folder: PathBuf,
        /// Its command.
        train: Box<Training>,
    },
}

/// The run that a command trains.
#[derive(Debug)]
pub struct Trained {
    pub folder: PathBuf,
    /// The command that hears of its failure.
    pub notify: Option<Trusted<Secret>>,
    /// A line about one that nobody answers for.
    pub left_out: Vec<String>,
}

/// The newest checkpoint of a run: a start that leaves it as it was has made no progress. One that is set aside as
/// damaged makes another one the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The command writes no checkpoints that this process knows of.
    Unknown,
    /// None yet.
    Nothing,
    /// The one after this number of steps.
    Steps(u32),
}

impl Progress {
    /// Whether a start that found `before` and ended with this may be followed by another.
    pub fn is_made_since(self, before: Progress) -> bool {
        self == Progress::Unknown || self != before
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Unknown => f.write_str("its checkpoints are not known"),
            Progress::Nothing => f.write_str("there is no checkpoint"),
            Progress::Steps(steps) => write!(f, "the newest checkpoint is still that after step {steps}"),
        }
    }
}

impl Restart {
    /// How the command of these words, which follow the name of pleach, is started again, and the command itself.
    ///
    /// # Errors
    /// Words that pleach does not know; a run file that cannot be read.
    pub fn of(words: &[String], language: Language) -> Result<Restart, Failure> {
        let Some(train) = (language.training)(words)? else { return Ok(Restart::Same) };
        let TrainSpec { run, origin, .. } = &train.spec;
        match origin {
            Origin::Checkpoint(named) => {
                let overrides = run.overrides();
                Ok(match described(named, &overrides, STORE) {
                    Ok(Some(Described { folder, run_file, .. })) => {
                        Restart::Resuming { folder: folder.to_path_buf(), overrides, stored: Some(run_file) }
                    }
                    Ok(None) => Restart::Resuming { folder: named.clone(), overrides, stored: None },
                    // Credentials may be on the hosts alone; the processes say what is missing.
                    Err(_) => Restart::Same,
                })
            }
            Origin::Weights(_) => Ok(Restart::Same),
            Origin::Seed => {
                let folder = run.load()?.run.folder.to_path_buf();
                Ok(Restart::Training { folder, train: Box::new(train) })
            }
        }
    }

    /// Whether a process that ended with `code` may succeed the next time: input that cannot be used stays so.
    pub fn helps(code: u8) -> bool {
        code != Failure::INPUT
    }

    /// The run that the command of these words trains, also where it is started again as before.
    pub fn trained(words: &[String], language: Language) -> Option<Trained> {
        let TrainSpec { run, origin, .. } = (language.training)(words).ok()??.spec;
        let Origin::Checkpoint(named) = origin else {
            let run = run.load().ok()?.run;
            return Some(Trained { folder: run.folder.to_path_buf(), notify: run.notify, left_out: vec![] });
        };
        let overrides = run.overrides();
        let (folder, kept) = match described(&named, &overrides, STORE) {
            Ok(Some(Described { folder, run_file, .. })) => (folder.to_path_buf(), Some(run_file)),
            Ok(None) => (named.clone(), kept_run_file(&named).ok()),
            // As in `of`.
            Err(_) => return None,
        };
        let name = folder.join(RUN_FILE).display().to_string();
        // Without a run file the command says what is missing.
        let loaded = kept.and_then(|kept| with_changes(&kept, &name, &overrides).ok());
        let (notify, left_out) = loaded.map_or((None, vec![]), |(KeptRun { config, mut left_out, .. }, judged)| {
            left_out.retain(|key| key == "run.notify");
            (config.run.notify, judged.lines(&name, &left_out))
        });
        Some(Trained { folder, notify, left_out })
    }

    /// The folder of the run, where its checkpoints tell how far it has come.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Restart::Same => None,
            Restart::Resuming { folder, .. } | Restart::Training { folder, .. } => Some(folder),
        }
    }

    /// The run that is trained, where its checkpoints tell how far it has come.
    ///
    /// # Errors
    /// A run file that cannot be read, or is wrong.
    pub fn config(&self) -> Result<Option<RunConfig>, Failure> {
        match self {
            Restart::Same => Ok(None),
            Restart::Training { train, .. } => train.spec.run.load().map(Some),
            Restart::Resuming { folder, overrides, stored } => {
                let name = folder.join(RUN_FILE).display().to_string();
                let kept = kept_run_file(folder).ok().or_else(|| stored.clone());
                // Without the file the command says what is missing.
                let Some(kept) = kept else { return Ok(None) };
                with_changes(&kept, &name, overrides).map(|(run, _)| Some(run.config))
            }
        }
    }

    /// How far the run has come.
    pub fn progress(&self) -> Progress {
        let Some(folder) = self.folder() else { return Progress::Unknown };
        newest_checkpoint(folder).map_or(Progress::Nothing, Progress::Steps)
    }

    /// The words after a failure of the command of `words`.
    pub fn command(&self, words: &[String]) -> Vec<String> {
        let Restart::Training { folder, train } = self else { return words.to_vec() };
        if self.progress() == Progress::Nothing {
            return words.to_vec();
        }
        // The run file in the folder has all options of the first start.
        let mut resumed = vec!["train".into(), "--resume".into(), folder.display().to_string()];
        if let Some(trace) = &train.spec.trace {
            resumed.extend(["--trace".into(), trace.display().to_string()]);
        }
        resumed.extend(train.printing.iter().cloned());
        resumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_adds_no_checkpoint_is_not_followed_by_another() {
        let [none, first, second] = [Progress::Nothing, Progress::Steps(20), Progress::Steps(40)];
        assert!(first.is_made_since(none) && second.is_made_since(first));
        assert!(first.is_made_since(second), "a damaged one was set aside");
        assert!(!none.is_made_since(none) && !second.is_made_since(second));
        assert!(Progress::Unknown.is_made_since(Progress::Unknown), "only the number of restarts counts");
    }
}
