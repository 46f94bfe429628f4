//! The part of a command that each process of a run does: it opens the engine and runs its ranks. All else, from text
//! to screen, is done once.

use std::sync::mpsc::channel;

use config::RunConfig;
use launcher::Launch;
use train::{
    Ending, Engine, Evaluation, EvaluationReport, Generation, Listener, LogitsSink, Ports, Setup, TensorSource,
    TokenSource, TrainError, run_evaluation, run_forward, run_generation,
};

use crate::failure::Failure;
use crate::processes::company::Company;
use crate::processes::place::launch_of_several;
use crate::run::engine::engine;
use crate::run::watchdog::{GRACE, watch};
use crate::screen::output::tell;

/// Whether all ranks are in this process, as commands other than `train` need them.
///
/// # Errors
/// A process that a launcher started as one of several.
pub fn check_alone(config: &RunConfig) -> Result<(), Failure> {
    match launch_of_several(config)? {
        None => Ok(()),
        Some(Launch { launcher, processes, .. }) => Err(Failure::Input(format!(
            "{launcher} started {processes} processes, and of the commands with ranks only `train` runs in several; start this one without a \
             launcher, or add --set run.engine=threads"
        ))),
    }
}

/// The ranks of a run that are in this process.
pub struct ProcessRanks<'a> {
    setup: &'a Setup,
    engine: Box<dyn Engine>,
}

impl<'a> ProcessRanks<'a> {
    /// All ranks of `setup`, fresh, with the resources that `config` gives them.
    ///
    /// # Errors
    /// A process that a launcher started as one of several.
    pub fn open(config: &RunConfig, setup: &'a Setup) -> Result<ProcessRanks<'a>, Failure> {
        check_alone(config)?;
        Ok(ProcessRanks { setup, engine: engine(config, setup) })
    }

    /// The ranks of `setup` that this process has in `company`.
    ///
    /// # Errors
    /// Processes that cannot be connected.
    pub fn of_run(company: &Company, config: &RunConfig, setup: &'a Setup) -> Result<ProcessRanks<'a>, Failure> {
        Ok(ProcessRanks { setup, engine: company.engine(config, setup)? })
    }

    /// Trains.
    ///
    /// # Errors
    /// The failure of a rank; so do those of all functions here.
    pub fn train(&self, ports: Ports<'_>) -> Result<Ending, Failure> {
        train::run(self.setup, &*self.engine, ports).map_err(failed)
    }

    /// Trains. Where the run fails and a rank does not come back, the process ends without it.
    ///
    /// # Errors
    /// As above.
    pub fn train_watched(&self, ports: Ports<'_>) -> Result<Ending, Failure> {
        std::thread::scope(|scope| {
            let (running, watched) = channel();
            let failure = || self.engine.failure().map(|(_, description)| description);
            scope.spawn(move || {
                if let Some(description) = watch(&watched, failure, GRACE) {
                    tell(&format!("{description}\n"));
                    std::process::exit(Failure::WORK.into());
                }
            });
            let result = self.train(ports);
            drop(running);
            result
        })
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
        run_evaluation(self.setup, &*self.engine, evaluation, Some(weights)).map_err(failed)
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
        run_forward(self.setup, &*self.engine, tokens, Some(weights), sink).map_err(failed)
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
        run_generation(self.setup, &*self.engine, generation, Some(weights), listener).map_err(failed)
    }
}

fn failed(error: TrainError) -> Failure {
    Failure::Work(error.to_string())
}
