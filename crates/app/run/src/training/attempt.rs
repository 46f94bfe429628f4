//! This start of a run, for the report of its failure: the rings of its ranks, and what this process knows when it
//! fails.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use blame::{Attempt, Attempts, Cause, CauseKind, Moment, OwnFailure, ProcessPart, ReportedFailure};
use config::{RunConfig, without_credentials};
use sync::lock;
use train::{Ending, Ports, Rings, TrainError};

use crate::failure::Failure;
use crate::layout::without_host;
use crate::messages::stderr::tell;
use crate::places::names::LOG;
use crate::places::newest_checkpoint::{newest_checkpoint, shown_by};
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::GroupMember;
use crate::process_group::process_ranks::ProcessRanks;
use crate::signal::Signal;
use crate::signals::exit_deadline::ExitDeadline;
use crate::signals::interrupt::Interrupt;
use crate::training::session::Session;
use crate::watch::fail_status;

/// The attempt as one of its processes takes part in it.
pub struct RunAttempt<'a> {
    /// For the ranks of this process.
    pub rings: Rings,
    run: &'a Path,
    config: &'a RunConfig,
    member: Option<&'a GroupMember>,
    ranks: Vec<usize>,
    /// Steps that are done, as process 0 knows them.
    done: AtomicU32,
    /// The first failure of a rank of this process.
    own: Mutex<Option<OwnFailure>>,
}

/// Topic of the number of an attempt.
const TOPIC: &str = "number of the attempt";

impl<'a> RunAttempt<'a> {
    /// Begins the attempt, once the run folder is that of process 0: an earlier attempt that has no report is over, and
    /// receives one. All other processes join it.
    ///
    /// # Errors
    /// A folder that cannot be written, and failures of other processes.
    pub fn begin(session: &Session<'a>) -> Result<RunAttempt<'a>, Failure> {
        match session.process_group.member() {
            Some(member) if !member.is_first() => RunAttempt::join(session, member),
            Some(_) | None => RunAttempt::begin_first(session),
        }
    }

    fn begin_first(session: &Session<'a>) -> Result<RunAttempt<'a>, Failure> {
        let config = &session.verdict.config;
        let run = config.run.folder.as_path();
        let (attempts, processes) = (Attempts::of_run(run), session.process_group.processes());
        let begun = || -> Result<Attempt, Failure> {
            for earlier in attempts.open().map_err(unusable)? {
                let report = earlier.report(newest_checkpoint(run)).map_err(unusable)?;
                tell(&format!("an earlier attempt failed: {}; {}\n", report.line(), shown_by(run)));
            }
            attempts.begin(config.train.steps, processes).map_err(unusable)
        };
        let member = session.process_group.member();
        let attempt = begun().inspect_err(|failure| {
            if let Some(member) = member {
                member.report(failure);
            }
        })?;
        if let Some(member) = member {
            member.broadcast(TOPIC, attempt.number().to_le_bytes().to_vec())?;
        }
        RunAttempt::of(session, attempt)
    }

    fn join(session: &Session<'a>, member: &'a GroupMember) -> Result<RunAttempt<'a>, Failure> {
        let number = member.broadcast(TOPIC, vec![])?;
        let number = <[u8; 4]>::try_from(number).map(u32::from_le_bytes);
        let number = number.map_err(|bytes| Failure::Work(format!("{TOPIC}: {bytes:?}")))?;
        RunAttempt::of(session, Attempts::of_run(&session.verdict.config.run.folder).attempt(number))
    }

    fn of(session: &Session<'a>, attempt: Attempt) -> Result<RunAttempt<'a>, Failure> {
        let Session { verdict, process_group, .. } = session;
        let (process, host, member) = match process_group {
            ProcessGroup::Alone => (0, crate::process_group::place::own_host(), None),
            ProcessGroup::Several(member) => (member.place.process, member.place.host.clone(), Some(member)),
        };
        let ranks = process_group.ranks_of(&verdict.config, &verdict.setup)?.into_iter().map(|rank| rank.0).collect();
        let rings = Rings { attempt, process, host };
        let config = &verdict.config;
        let (done, own) = (AtomicU32::new(0), Mutex::new(None));
        Ok(RunAttempt { rings, run: &config.run.folder, config, member, ranks, done, own })
    }

    /// Notes that the run has done `steps` steps.
    pub fn reached(&self, steps: u32) {
        self.done.store(steps, Ordering::Relaxed);
    }

    /// Ends this process where it has not ended within `run.grace_seconds` after a signal, and writes that down.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn exit_deadline(&self, interrupt: &Interrupt) -> Result<ExitDeadline, Failure> {
        let record = LastRecord { attempt: self.rings.attempt.clone(), run: self.run.to_path_buf(), part: self.part() };
        let seconds = self.config.run.grace_seconds;
        ExitDeadline::begin(seconds, interrupt, |signal, text| record.grace_ended(signal, text))
    }

    /// Notes the failure of a rank of this process, at once: this process may be ended before it concludes.
    pub fn note(&self, failure: OwnFailure) {
        lock(&self.own).get_or_insert(failure);
        self.add_part();
    }

    /// Notes that a rank of this process does not come back from a run that has failed: `description` is of that
    /// failure.
    pub fn note_stuck(&self, description: &str) {
        let cause = Cause::new(CauseKind::OtherRank, format!("a rank did not stop: {description}"));
        self.note(self.after_steps(cause));
        if self.rings.process == 0 {
            fail_status(self.run);
        }
    }

    /// Ends the attempt, of which this process has seen `result`. The report of a run of one process is written here;
    /// of several processes, `pleach launch` writes it, or `pleach blame`, or the next attempt.
    ///
    /// # Errors
    /// The error in `result`.
    pub fn conclude<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        let is_first = self.member.is_none_or(GroupMember::is_first);
        match &result {
            Ok(_) | Err(Failure::Interrupted { .. }) if is_first => {
                // A folder that is left says that nothing was reported, and the next attempt looks at it.
                let _ = self.rings.attempt.end_well();
            }
            Ok(_) | Err(Failure::Interrupted { .. }) => {}
            // Nothing has run: the input was refused.
            Err(failure) if failure.is_input() && lock(&self.own).is_none() => {
                if is_first {
                    let _ = self.rings.attempt.end_well();
                }
            }
            Err(failure) => {
                if self.reported_failure().is_none() {
                    lock(&self.own).get_or_insert_with(|| self.own_failure(failure));
                }
                self.add_part();
                if let Some(advice) = self.member.and_then(|member| without_host::advice(self.config, member)) {
                    tell(&advice);
                }
                if self.member.is_none() && self.rings.attempt.report(newest_checkpoint(self.run)).is_ok() {
                    tell(&format!("{}\n", shown_by(self.run)));
                }
            }
        }
        result
    }

    /// A failure that is not that of a rank.
    fn own_failure(&self, failure: &Failure) -> OwnFailure {
        match failure {
            Failure::RollBack { step, kind, reason } => OwnFailure {
                step: *step,
                moment: Moment::InStep,
                instruction: "gradient norm".into(),
                ..self.after_steps(Cause::new(*kind, reason.clone()))
            },
            Failure::Write(_)
            | Failure::Input(_)
            | Failure::Run(_)
            | Failure::Work(_)
            | Failure::OfFirst(_)
            | Failure::Reported(_)
            | Failure::Process { .. }
            | Failure::Interrupted { .. } => self.after_steps(cause_of(failure)),
        }
    }

    /// A failure of the process, after the steps that are done.
    fn after_steps(&self, cause: Cause) -> OwnFailure {
        let step = self.done.load(Ordering::Relaxed);
        OwnFailure { rank: None, about: None, step, moment: Moment::AfterStep, instruction: String::new(), cause }
    }

    fn add_part(&self) {
        // A run that has failed has a message already, and nobody is helped by a second one about its report.
        let _ = self.rings.attempt.add_process(&self.part());
    }

    /// Everything that this process knows now.
    fn part(&self) -> ProcessPart {
        ProcessPart {
            process: self.rings.process,
            host: self.rings.host.clone(),
            pid: std::process::id(),
            ranks: self.ranks.clone(),
            at_ns: blame::now_ns(),
            own: lock(&self.own).clone(),
            heard: self.reported_failure(),
        }
    }

    fn reported_failure(&self) -> Option<ReportedFailure> {
        let failure = self.member?.control.failure()?;
        let (kind, _) = CauseKind::of_text(&failure.report.cause);
        let (process, host, rank) = (failure.process, failure.host, failure.report.rank);
        Some(ReportedFailure { process, host, rank, kind, text: failure.report.cause })
    }
}

/// The last records of a process that ends before its run does.
#[derive(Debug)]
struct LastRecord {
    attempt: Attempt,
    run: PathBuf,
    part: ProcessPart,
}

impl LastRecord {
    /// Writes that the grace after `signal` has ended, in the words `text`: for `pleach blame`, and from process 0 into
    /// `train.log` and the file of the run's state. Nothing depends on whether they arrive.
    fn grace_ended(self, signal: Signal, text: &str) {
        let cause = Cause { signal: Some(signal.number()), ..Cause::new(CauseKind::Grace, text) };
        let moment = Moment::InStep;
        let own = OwnFailure { rank: None, about: None, step: 0, moment, instruction: String::new(), cause };
        let part = ProcessPart { at_ns: blame::now_ns(), own: Some(own), ..self.part };
        let _ = self.attempt.add_process(&part);
        if part.process == 0 {
            if let Ok(mut log) = files::open_to_append(&self.run.join(LOG)) {
                let _ = writeln!(log, "{text}");
            }
            fail_status(&self.run);
        }
    }
}

/// Trains `ranks`, as a part of `attempt`, which hears of a failure.
///
/// # Errors
/// The failure of a rank.
pub fn train_in(ranks: &ProcessRanks<'_>, ports: Ports<'_>, attempt: &RunAttempt<'_>) -> Result<Ending, Failure> {
    let ports = Ports { rings: Some(&attempt.rings), ..ports };
    let mut returns = None;
    let ended = ranks.watched_with(
        |setup, engine| {
            train::run(setup, engine, ports).inspect_err(|error| match error {
                TrainError::RollBack { step, .. } => {
                    let kind = error.own_failure().cause.kind;
                    returns = Some(Failure::RollBack { step: *step, kind, reason: error.to_string() });
                }
                TrainError::Prepare(_)
                | TrainError::Rank(_)
                | TrainError::Overflow { .. }
                | TrainError::Skipping { .. }
                | TrainError::NotFinite { .. } => attempt.note(error.own_failure()),
            })
        },
        |description| attempt.note_stuck(description),
    );
    returns.map_or(ended, Err)
}

/// The cause of a failure that is not that of a rank.
fn cause_of(failure: &Failure) -> Cause {
    let text = without_credentials(&failure.to_string());
    let kind = match (failure, CauseKind::of_text(&text).0) {
        (Failure::Write(_), CauseKind::Other) => CauseKind::Io,
        (_, kind) => kind,
    };
    Cause::new(kind, text)
}

fn unusable(error: blame::AttemptError) -> Failure {
    Failure::Input(error.to_string())
}
