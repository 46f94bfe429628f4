//! The command after a failure.

use std::path::PathBuf;

use checkpoint::committed;

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::run::run_folder::CHECKPOINTS;

/// How a command is started again.
#[derive(Debug)]
pub enum Restart {
    /// As before.
    Same,
    /// A run that trains resumes from its newest checkpoint, once it has one.
    Training {
        /// Its folder.
        folder: PathBuf,
        /// Its arguments.
        train: TrainArguments,
    },
}

impl Restart {
    /// Whether a process that ended with `code` may succeed the next time: input that cannot be used stays so.
    pub fn helps(code: u8) -> bool {
        code != Failure::INPUT
    }

    /// The command after a failure of `command`.
    pub fn command(&self, command: &[String]) -> Vec<String> {
        let Restart::Training { folder, train } = self else { return command.to_vec() };
        let has_checkpoint = committed(&folder.join(CHECKPOINTS)).is_ok_and(|found| !found.is_empty());
        if !has_checkpoint {
            return command.to_vec();
        }
        // The run file in the folder has all options of the first start.
        let mut resumed = vec!["train".into(), "--resume".into(), folder.display().to_string()];
        if let Some(trace) = &train.trace {
            resumed.extend(["--trace".into(), trace.display().to_string()]);
        }
        resumed.extend(train.json.then(|| "--json".to_string()));
        resumed.extend(train.quiet.then(|| "--quiet".to_string()));
        resumed
    }
}
