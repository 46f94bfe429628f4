//! A process other than 0: silent unless it fails, and its part of the results goes to process 0.

use device::DeviceError;
use train::{ForwardingSink, Observer, SavingPlace, StepReport, Wish, WorkTimes, Worker};

use crate::failure::Failure;
use crate::process_group::delivery::Deliverer;
use crate::process_group::several::Several;
use crate::process_group::signal_relay::relay_while;
use crate::signals::grace::Grace;
use crate::signals::interrupt::Interrupt;
use crate::training::measured_trace::{Recorder, Recording};
use crate::training::ranks::{Ends, Ranks};
use crate::training::session::Session;
use crate::training::work_times::TimesSender;

/// Hears all and prints nothing: process 0 asks and reports for all.
struct Silent<'a> {
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

/// The process, once process 0 has the files of the run.
pub struct Other<'a> {
    several: &'a Several,
    interrupt: Interrupt,
    _grace: Grace,
}

impl<'a> Other<'a> {
    /// Listens to signals.
    ///
    /// # Errors
    /// Failures of other processes.
    pub fn open(session: &Session<'_>, several: &'a Several) -> Result<Other<'a>, Failure> {
        let interrupt = session.signals.heard();
        let grace = Grace::begin(session.verdict.config.run.grace_seconds, &interrupt)?;
        session.company.once("the files of the run", || Ok(()))?;
        Ok(Other { several, interrupt, _grace: grace })
    }

    /// Trains `ranks`; weights and records of checkpoints go to process 0.
    ///
    /// # Errors
    /// The failure of any process.
    pub fn train(self, ranks: Ranks<'_>) -> Result<(), Failure> {
        let Session { asked, verdict: run, company, .. } = ranks.session;
        let recorder = asked.spec.trace.as_ref().map(|_| Recorder::new(run.config.run.ranks, Recording::EveryStep));
        let own = company.ranks_of(&run.config, &run.setup)?.len();
        let silent = Silent { times: TimesSender::new(self.several, own), recorder };
        relay_while(self.several, &self.interrupt, || delivered(self.several, &silent, ranks))?
    }
}

/// Trains `ranks` while a thread delivers to process 0.
fn delivered(several: &Several, silent: &Silent<'_>, ranks: Ranks<'_>) -> Result<(), Failure> {
    let deliverer = Deliverer::begin(several);
    let in_memory = deliverer.of_memory();
    let post = |message: Vec<u8>| deliverer.weight(message);
    let (config, folder) = (&ranks.session.verdict.config, ranks.session.checkpoints());
    let disk = SavingPlace { folder: &folder, collector: &deliverer, every: config.run.save_every };
    let ends = Ends {
        observer: silent,
        recorder: silent.recorder.as_ref(),
        weights: &ForwardingSink::new(&post),
        disk,
        in_memory: Some(&in_memory),
        run: &config.to_toml(),
    };
    match ranks.train(ends) {
        Ok(_) => deliverer.end(),
        // Process 0 waits for the end of this delivery, too.
        Err(returns @ Failure::RollBack { .. }) => deliverer.end().and(Err(returns)),
        Err(failure) => Err(failure),
    }
}
