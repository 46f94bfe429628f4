//! The part of a command that each process of a run does: it opens the engine and runs its ranks. All else, from text
//! to screen, is done once.

use std::fmt::Display;
use std::sync::mpsc::channel;

use config::RunConfig;
use train::{
    Ending, Engine, Evaluation, EvaluationReport, Generation, Listener, LogitsSink, ModelChoices, Ports, Setup,
    TensorSource, TokenSource, run_evaluation, run_forward, run_generation,
};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::process_group::group::ProcessGroup;
use crate::signals::watchdog::{GRACE, watch};

/// The ranks of a run that are in this process.
pub struct ProcessRanks<'a> {
    setup: &'a Setup,
    engine: Box<dyn Engine>,
}

impl<'a> ProcessRanks<'a> {
    /// The ranks of `setup` that this process has in `process_group`, with the resources that `config` gives them.
    ///
    /// # Errors
    /// Processes that cannot be connected.
    pub fn open(
        process_group: &ProcessGroup,
        config: &RunConfig,
        setup: &'a Setup,
    ) -> Result<ProcessRanks<'a>, Failure> {
        ProcessRanks::with_choices(process_group, config, setup, ModelChoices::new())
    }

    /// Returns the same as [`ProcessRanks::open`], with what was chosen before for products.
    ///
    /// # Errors
    /// Processes that cannot be connected.
    pub fn with_choices(
        process_group: &ProcessGroup,
        config: &RunConfig,
        setup: &'a Setup,
        choices: ModelChoices,
    ) -> Result<ProcessRanks<'a>, Failure> {
        Ok(ProcessRanks { setup, engine: process_group.engine(config, setup, choices)? })
    }

    /// Does `work` with the ranks. Where they fail and one does not come back, the process ends without it.
    ///
    /// # Errors
    /// The error of `work`.
    pub fn watched<T, E: Display>(&self, work: impl FnOnce(&Setup, &dyn Engine) -> Result<T, E>) -> Result<T, Failure> {
        self.watched_with(work, |_| {})
    }

    /// Does the same as [`ProcessRanks::watched`]; `note` gets the failure before the process ends without a rank.
    ///
    /// # Errors
    /// The error of `work`.
    pub fn watched_with<T, E: Display>(
        &self,
        work: impl FnOnce(&Setup, &dyn Engine) -> Result<T, E>,
        note: impl FnOnce(&str) + Send,
    ) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            let (running, watched) = channel();
            let failure = || self.engine.failure().map(|(_, description)| description);
            sync::start_scoped(scope, "watch", move || {
                if let Some(description) = watch(&watched, failure, GRACE) {
                    note(&description);
                    tell(&format!("{description}\n"));
                    std::process::exit(Failure::WORK.into());
                }
            })?;
            let result = work(self.setup, &*self.engine);
            drop(running);
            result.map_err(|error| Failure::Work(error.to_string()))
        })
    }

    /// Trains.
    ///
    /// # Errors
    /// The failure of a rank; so do those of all functions here.
    pub fn train(&self, ports: Ports<'_>) -> Result<Ending, Failure> {
        self.watched(|setup, engine| train::run(setup, engine, ports))
    }

    /// Measures the loss on held-out text.
    ///
    /// # Errors
    /// As above.
    pub fn evaluate(
        &self,
        evaluation: Evaluation<'_>,
        weights: &dyn TensorSource,
    ) -> Result<EvaluationReport, Failure> {
        self.watched(|setup, engine| run_evaluation(setup, engine, evaluation, Some(weights)))
    }

    /// Computes the logits of `tokens`, for `sink`.
    ///
    /// # Errors
    /// As above.
    pub fn forward(
        &self,
        tokens: &dyn TokenSource,
        weights: &dyn TensorSource,
        sink: &dyn LogitsSink,
    ) -> Result<EvaluationReport, Failure> {
        self.watched(|setup, engine| run_forward(setup, engine, tokens, Some(weights), sink))
    }

    /// Continues a text.
    ///
    /// # Errors
    /// As above.
    pub fn generate(
        &self,
        generation: Generation<'_>,
        weights: &dyn TensorSource,
        listener: &dyn Listener,
    ) -> Result<(), Failure> {
        self.watched(|setup, engine| run_generation(setup, engine, generation, Some(weights), listener))
    }
}
