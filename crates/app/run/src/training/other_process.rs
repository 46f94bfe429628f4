//! A process other than 0: silent unless it fails, and its part of the results goes to process 0.

use device::DeviceError;
use train::{ForwardingSink, Observer, StepReport, StopRequest, WorkTimes, Worker};

use crate::failure::Failure;
use crate::process_group::delivery::Deliverer;
use crate::process_group::member::GroupMember;
use crate::process_group::signal_relay::relay_while;
use crate::signals::exit_deadline::ExitDeadline;
use crate::signals::interrupt::Interrupt;
use crate::training::attempt::RunAttempt;
use crate::training::measured_trace::{Recorder, Recording};
use crate::training::ranks::{RankOutputs, Ranks};
use crate::training::session::Session;
use crate::training::work_times::TimesSender;

/// The observer of a process that prints nothing: process 0 asks and reports for all.
struct QuietObserver<'a> {
    /// Takes the times of ranks to process 0.
    times: TimesSender<'a>,
    /// Hears of every instruction, where a trace is asked for.
    recorder: Option<Recorder>,
}

impl Observer for QuietObserver<'_> {
    fn rank_step(&self, times: WorkTimes) {
        self.times.take(times);
    }

    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        self.recorder.as_ref().map_or(Ok(()), |recorder| recorder.ended(worker))
    }
}

/// The process, once process 0 has the files of the run.
pub struct OtherProcess<'a> {
    member: &'a GroupMember,
    interrupt: Interrupt,
    _exit_deadline: ExitDeadline,
}

impl<'a> OtherProcess<'a> {
    /// Listens to signals.
    ///
    /// # Errors
    /// Failures of other processes.
    pub fn open(
        session: &Session<'_>,
        member: &'a GroupMember,
        attempt: &RunAttempt<'_>,
    ) -> Result<OtherProcess<'a>, Failure> {
        let interrupt = session.signals.noted();
        let exit_deadline = attempt.exit_deadline(&interrupt)?;
        session.process_group.once("the files of the run", || Ok(()))?;
        Ok(OtherProcess { member, interrupt, _exit_deadline: exit_deadline })
    }

    /// Trains `ranks`; weights and records of checkpoints go to process 0.
    ///
    /// # Errors
    /// The failure of any process.
    pub fn train(self, ranks: Ranks<'_>) -> Result<(), Failure> {
        let Session { request, verdict: run, process_group, .. } = ranks.session;
        let recorder = request.spec.trace.as_ref().map(|_| Recorder::new(run.config.run.ranks, Recording::EveryStep));
        let own = process_group.ranks_of(&run.config, &run.setup)?.len();
        let silent = QuietObserver { times: TimesSender::new(self.member, own), recorder };
        relay_while(self.member, &self.interrupt, || delivered(self.member, &silent, ranks))?
    }
}

/// Trains `ranks` while a thread delivers to process 0.
fn delivered(member: &GroupMember, silent: &QuietObserver<'_>, ranks: Ranks<'_>) -> Result<(), Failure> {
    let deliverer = Deliverer::begin(member);
    let post = |message: Vec<u8>| deliverer.weight(message);
    let config = &ranks.session.verdict.config;
    let ends = RankOutputs {
        observer: silent,
        recorder: silent.recorder.as_ref(),
        weights: &ForwardingSink::new(&post),
        collector: &deliverer,
        run: &config.to_toml(),
    };
    match ranks.train(ends) {
        Ok(_) => deliverer.end(),
        // Process 0 waits for the end of this delivery, too.
        Err(returns @ Failure::RollBack { .. }) => deliverer.end().and(Err(returns)),
        Err(failure) => Err(failure),
    }
}
