//! The ranks of a process other than 0: silent unless they fail.

use device::DeviceError;
use train::{
    ForwardingSink, ModelChoices, Observer, Ports, Saving, SavingPlace, Start, StepReport, Wish, WorkTimes, Worker,
};

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::process_group::delivery::Deliverer;
use crate::process_group::process_ranks::ProcessRanks;
use crate::process_group::several::Several;
use crate::process_group::signal_relay::relay_while;
use crate::run::attempt::{RunAttempt, train_in};
use crate::run::measured_trace::{Recorder, Recording};
use crate::run::product_algorithms;
use crate::run::roll_back::returning;
use crate::run::train::Session;
use crate::run::work_times::TimesSender;
use crate::signals::grace::Grace;

/// Hears all and prints nothing: process 0 asks and reports for all.
pub struct Silent<'a> {
    /// Takes the times of ranks to process 0.
    times: TimesSender<'a>,
    /// Hears of every instruction, where a trace is asked for.
    recorder: Option<Recorder>,
}

impl Observer for Silent<'_> {
    fn rank_step(&self, times: WorkTimes) {
        self.times.take(times);
    }

    fn step(&self, _report: &StepReport) -> Wish {
        Wish::Continue
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        self.recorder.as_ref().map_or(Ok(()), |recorder| recorder.ended(worker))
    }
}

/// Runs from `start` to the end; weights and records of checkpoints go to process 0.
///
/// # Errors
/// The failure of any process.
pub fn run(
    session: &Session<'_>,
    several: &Several,
    arguments: &TrainArguments,
    start: Start<'_>,
) -> Result<(), Failure> {
    let attempt = RunAttempt::join(session, several)?;
    let run = |session: &Session<'_>, start: Start<'_>| run_attempt(session, several, arguments, start, &attempt);
    attempt.conclude(returning(session, None, start, run))
}

fn run_attempt(
    session: &Session<'_>,
    several: &Several,
    arguments: &TrainArguments,
    start: Start<'_>,
    attempt: &RunAttempt<'_>,
) -> Result<(), Failure> {
    let interrupt = session.signals.heard();
    let _grace = Grace::begin(session.verdict.config.run.grace_seconds, &interrupt)?;
    session.company.once("the files of the run", || Ok(()))?;
    let choices = product_algorithms::decide(session)?.choices;
    let recorder =
        arguments.trace.as_ref().map(|_| Recorder::new(session.verdict.config.run.ranks, Recording::EveryStep));
    let ranks = session.company.ranks_of(&session.verdict.config, &session.verdict.setup)?.len();
    let silent = Silent { times: TimesSender::new(several, ranks), recorder };
    relay_while(several, &interrupt, || train(session, several, &silent, (start, attempt), choices))?
}

fn train(
    session: &Session<'_>,
    several: &Several,
    silent: &Silent<'_>,
    (start, attempt): (Start<'_>, &RunAttempt<'_>),
    choices: ModelChoices,
) -> Result<(), Failure> {
    let Session { verdict, text, company, .. } = session;
    let memory = session.memory.map_or(Ok(None), |memory| memory.attempt(several, start))?;
    let deliverer = Deliverer::begin(several);
    let of_memory = deliverer.of_memory();
    let post = |message: Vec<u8>| deliverer.weight(message);
    let weights = ForwardingSink::new(&post);
    let (run, folder) = (verdict.config.to_toml(), session.checkpoints());
    let (every, data_xxh3) = (verdict.config.run.save_every, Some(text.hash()));
    let disk = SavingPlace { folder: &folder, collector: &deliverer, every };
    let memory = memory.as_ref().map(|memory| memory.place(&of_memory));
    let saving = Some(Saving { disk, memory, run: &run, data_xxh3 });
    let evaluation = text.evaluation();
    let validation = text.validation();
    let ports = Ports {
        start,
        saving,
        weights: Some(&weights),
        evaluation,
        validation: &validation,
        samples: text.samples(),
        recheck: verdict.config.run.recheck,
        ..Ports::new(text.training(), silent)
    };
    let ranks = ProcessRanks::with_choices(company, &verdict.config, &verdict.setup, choices)?;
    let trained = train_in(&ranks, ports, attempt);
    if let Err(returns @ Failure::RollBack { .. }) = trained {
        // Process 0 waits for the end of this delivery, too.
        deliverer.end()?;
        return Err(returns);
    }
    trained?;
    if let Some(recorder) = &silent.recorder {
        recorder.gather(several)?;
    }
    deliverer.end()
}
