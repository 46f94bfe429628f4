//! The ranks of a process other than 0: silent unless they fail.

use train::{ForwardingSink, Observer, Ports, Saving, Start, StepReport, Wish};

use crate::failure::Failure;
use crate::processes::company::Several;
use crate::processes::delivery::Deliverer;
use crate::run::grace::Grace;
use crate::run::interrupt::Interrupt;
use crate::run::process_ranks::ProcessRanks;
use crate::run::signal_relay::relay_while;
use crate::run::train::Session;

/// Process 0 asks and reports for all.
pub struct Silent;

impl Observer for Silent {
    fn step(&self, _report: &StepReport) -> Wish {
        Wish::Continue
    }
}

/// Runs from `start` to the end; weights and records of checkpoints go to process 0.
///
/// # Errors
/// The failure of any process.
pub fn run(session: &Session<'_>, several: &Several, start: Start<'_>) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let _grace = Grace::begin(session.verdict.config.run.grace_seconds, &interrupt);
    session.company.once("the files of the run", || Ok(()))?;
    relay_while(several, &interrupt, || train(session, several, start))
}

fn train(session: &Session<'_>, several: &Several, start: Start<'_>) -> Result<(), Failure> {
    let Session { verdict, text, company } = session;
    let deliverer = Deliverer::begin(several);
    let post = |message: Vec<u8>| deliverer.weight(message);
    let weights = ForwardingSink::new(&post);
    let (run, folder) = (verdict.config.to_toml(), session.checkpoints());
    let (every, data_xxh3) = (verdict.config.run.save_every, Some(text.hash()));
    let saving = Some(Saving { folder: &folder, collector: &deliverer, every, run: &run, data_xxh3 });
    let evaluation = text.evaluation();
    let ports = Ports { start, saving, weights: Some(&weights), evaluation, ..Ports::new(text.training(), &Silent) };
    ProcessRanks::open(company, &verdict.config, &verdict.setup)?.train(ports)?;
    deliverer.end()
}
