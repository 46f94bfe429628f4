//! The ranks of a process other than 0: silent unless they fail.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use train::{ForwardingSink, Observer, Ports, Saving, Start, StepReport, Wish};

use crate::failure::Failure;
use crate::processes::company::{Company, Several};
use crate::processes::delivery::Deliverer;
use crate::run::grace::Grace;
use crate::run::interrupt::Interrupt;
use crate::run::process_ranks::ProcessRanks;
use crate::run::train::Session;

/// How often a signal is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// Process 0 asks and reports for all.
struct Silent;

impl Observer for Silent {
    fn step(&self, _report: &StepReport) -> Wish {
        Wish::Continue
    }
}

/// Runs from `start` to the end; weights and records of checkpoints go to process 0.
///
/// # Errors
/// The failure of any process.
pub fn run(session: &Session, start: Start<'_>) -> Result<(), Failure> {
    let Company::Several(several) = &session.company else { return Ok(()) };
    let config = &session.verdict.config;
    let interrupt = Interrupt::listen()?;
    let _grace = Grace::begin(config.run.grace_seconds, &interrupt);
    session.company.once("the files of the run", || Ok(()))?;
    std::thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        let interrupt = &interrupt;
        scope.spawn(move || {
            while ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                if let Some(signal) = interrupt.signal() {
                    return several.control.stop(signal.number());
                }
            }
        });
        let result = train(session, several, start);
        drop(running);
        result
    })
}

fn train(session: &Session, several: &Several, start: Start<'_>) -> Result<(), Failure> {
    let Session { verdict, text, company } = session;
    let deliverer = Deliverer::new(&several.control);
    let post = |message: Vec<u8>| deliverer.weight(message);
    let weights = ForwardingSink::new(&post);
    let (run, folder) = (verdict.config.to_toml(), session.checkpoints());
    let (every, data_xxh3) = (verdict.config.run.save_every, Some(text.hash()));
    let saving = Some(Saving { folder: &folder, collector: &deliverer, every, run: &run, data_xxh3 });
    let evaluation = text.evaluation();
    let ports = Ports { start, saving, weights: Some(&weights), evaluation, ..Ports::new(text.training(), &Silent) };
    ProcessRanks::of_run(company, &verdict.config, &verdict.setup)?.train_watched(ports)?;
    deliverer.end()
}
