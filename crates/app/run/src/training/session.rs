//! A run that is about to start: its text is read, and its processes have met.

use std::collections::BTreeMap;
use std::sync::Arc;

use checkpoint::{CheckpointFolder, Disk};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::peer_memory::PeerMemory;
use crate::places::names::CHECKPOINTS;
use crate::process_group::group::{ProcessGroup, together};
use crate::process_group::meeting::Meeting;
use crate::signals::interrupt::{self, AtOnce};
use crate::spec::TrainSpec;
use crate::text::run_text::Text;
use crate::text::shared_text::OwnText;
use crate::training::observer::Observer;
use crate::verdict::Verdict;

/// The run that a user asks for, and its observer.
#[derive(Clone, Copy)]
pub struct RunRequest<'a> {
    pub spec: &'a TrainSpec,
    pub observer: &'a dyn Observer,
}

/// A run that is about to start.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    pub request: RunRequest<'a>,
    /// The run.
    pub verdict: &'a Verdict,
    /// The training text.
    pub text: &'a Text,
    /// The processes of the run.
    pub process_group: &'a ProcessGroup,
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
        request: RunRequest<'_>,
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
        together(&meeting, |process_group| {
            process_group.check_memory(config, setup)?;
            let text = Text::new(config, text.tokenized(process_group)?)?;
            work(&Session { request, verdict, text: &text, process_group, signals: &signals, memory: None })
        })
        .map(|_done| ())
    }

    /// Forgets the memory of hosts once all processes have ended well; else process 0 says that state is left there.
    ///
    /// # Errors
    /// Failures of other processes.
    pub fn after(&self, ended: &Result<(), Failure>) -> Result<(), Failure> {
        let Some(memory) = self.memory else { return Ok(()) };
        match ended {
            Ok(()) | Err(Failure::Interrupted { .. }) => {
                self.process_group.once("the end of checkpoints in memory", || Ok(()))?;
                memory.forget();
            }
            Err(_) if self.process_group.is_first() => {
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
        CheckpointFolder::new(&self.verdict.config.run.folder.join(CHECKPOINTS), Arc::new(Disk))
    }
}
