//! Ranks as threads: each does the same body, and the failure of one ends all, reported with its step and instruction.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, ScopedJoinHandle};

use blame::CauseKind;
use config::{Overlap, Recheck};
use device::{DeviceError, DeviceKind, Numerics};
use mesh::{Axis, Rank};
use program::Instr;

use crate::engine::{Engine, RankEngine};
use crate::ranks::agreement::{AgreementError, agree};
use crate::ranks::failure::{RankFailure, TrainError, excerpt, kind_of};
use crate::ranks::rings::RankRing;
use crate::recheck::rechecked;
use crate::setup::start::Start;
use crate::setup::{Setup, WorkloadIndex};
use crate::worker::Worker;
use crate::worker::batch::TokenSource;

/// Where a rank is, so that a panic can be reported with its step and instruction.
#[derive(Default)]
pub(crate) struct Progress {
    step: Cell<u32>,
    at: Cell<Option<(WorkloadIndex, usize)>>,
    ring: RefCell<Option<RankRing>>,
}

impl Progress {
    /// From now on the last instructions are kept in `ring`, where there is one.
    pub(crate) fn keep_in(&self, ring: Option<RankRing>) {
        *self.ring.borrow_mut() = ring;
    }

    /// Does `work` that is not an instruction, under this name.
    pub(crate) fn named<T>(&self, name: &str, work: impl FnOnce() -> T) -> T {
        self.with_ring(|ring| ring.begin(self.step.get(), name));
        let done = work();
        self.with_ring(RankRing::end);
        done
    }

    fn with_ring(&self, note: impl FnOnce(&mut RankRing)) {
        if let Some(ring) = self.ring.borrow_mut().as_mut() {
            note(ring);
        }
    }

    /// A step begins, counted from 1.
    pub(crate) fn begin_step(&self, step: u32) {
        self.step.set(step);
    }

    /// Runs the program of the rank's workload from start to end. `watch` is called around each instruction and may end
    /// it early.
    pub(crate) fn run_program<'a>(
        &self,
        worker: &mut Worker<'a>,
        mut watch: impl FnMut(&mut Worker<'a>, Moment, Instr) -> Result<Flow, DeviceError>,
    ) -> Result<(), DeviceError> {
        worker.ports.device.synchronize()?;
        for at in 0..worker.position.program.instrs.len() {
            let instr = worker.position.program.instrs[at];
            self.at.set(Some((worker.position.workload, at)));
            worker.position.at = at;
            watch(worker, Moment::Before, instr)?;
            self.with_ring(|ring| ring.begin_instr(self.step.get(), &worker.position.program.view, instr));
            worker.issue(instr)?;
            self.with_ring(RankRing::end);
            match watch(worker, Moment::After, instr)? {
                Flow::Continue => {}
                Flow::End => return worker.ports.device.synchronize(),
            }
        }
        worker.ports.device.synchronize()?;
        self.at.set(None);
        Ok(())
    }
}

/// When a watcher is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The instruction is about to be executed.
    Before,
    /// It has been.
    After,
}

/// Whether a program continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next instruction.
    Continue,
    /// Its rest is left out.
    End,
}

/// A rank of a launch, before it is opened.
#[derive(Clone, Copy)]
pub(crate) struct RankLaunch<'a> {
    /// The run.
    pub(crate) setup: &'a Setup,
    pub(crate) engine: &'a dyn Engine,
    /// The rank.
    pub(crate) number: Rank,
    /// Where it is.
    pub(crate) progress: &'a Progress,
}

impl<'a> RankLaunch<'a> {
    /// Opens the rank with room for all programs of the run, and returns once all ranks are about to run the same; see
    /// [`Worker::open`] and [`agree`].
    pub(crate) fn open(
        &self,
        tokens: &'a dyn TokenSource,
        start: Start<'_>,
        recheck: Recheck,
    ) -> Result<Worker<'a>, Stop> {
        let coord = self.setup.mesh.coord(self.number);
        let size = self.setup.programs.arena_size(coord.along(Axis::Pp));
        let numerics = Numerics::of(self.setup.train.precision, self.setup.train.sums);
        let engine = self.engine.open(self.number, size, numerics)?;
        let engine = self.rechecked(engine, recheck, size.end_bytes());
        let rank = Worker::open(self.setup, coord, tokens, start, engine)?;
        match agree(&rank.ports, &rank.state.constants, self.setup.fingerprint()) {
            Ok(()) => Ok(rank),
            Err(AgreementError::Device(error)) => Err(error.into()),
            Err(differ @ AgreementError::Differ(_)) => Err(Stop::Together(TrainError::Prepare(differ.to_string()))),
        }
    }
}

impl RankLaunch<'_> {
    /// The same rank, some of whose operations are computed twice. On devices with queues, and where streams run side
    /// by side, a second computation cannot follow the first at once: there only state is checked.
    fn rechecked(&self, engine: RankEngine, recheck: Recheck, arena_bytes: usize) -> RankEngine {
        let overlap = self.setup.parallelism.overlap_or_off();
        if self.engine.describe().device != DeviceKind::CPU || overlap == Overlap::On || recheck == Recheck::Off {
            return engine;
        }
        rechecked(engine, recheck, (self.number, self.setup.train.seed), arena_bytes)
    }
}

/// Why a rank stops before the end.
pub(crate) enum Stop {
    /// Seen by all ranks at once.
    Together(TrainError),
    /// Seen by this rank.
    Failed(StopCause),
}

/// The reason as a rank saw it.
pub(crate) struct StopCause {
    kind: CauseKind,
    /// Another rank that it is about.
    about: Option<Rank>,
    text: String,
}

impl<E: Error + 'static> From<E> for Stop {
    fn from(error: E) -> Stop {
        let (kind, about) = kind_of(&error);
        Stop::Failed(StopCause { kind, about, text: error.to_string() })
    }
}

/// Does `body` on a thread for each of `ranks`; what the first returned stands for all.
///
/// # Errors
/// The first rank's failure; every other rank stops because of it.
pub(crate) fn launch<T: Send>(
    setup: &Setup,
    engine: &dyn Engine,
    ranks: impl Iterator<Item = Rank>,
    body: impl Fn(RankLaunch<'_>) -> Result<T, Stop> + Sync,
) -> Result<T, TrainError> {
    let body = &body;
    std::thread::scope(|scope| {
        let spawn = |rank: Rank| {
            let named = Builder::new().name(rank.to_string());
            let thread = named.spawn_scoped(scope, move || guarded(setup, engine, rank, body));
            let thread = thread.map_err(|error| lost(engine, rank, format!("its thread cannot be started: {error}")));
            (rank, thread)
        };
        let threads: Vec<_> = ranks.map(spawn).collect();
        let join = |(rank, thread): (Rank, Result<ScopedJoinHandle<'_, _>, TrainError>)| {
            let joined = thread.and_then(|thread| {
                thread.join().unwrap_or_else(|_| Err(lost(engine, rank, "its thread ended".into())))
            });
            (rank, joined)
        };
        first_cause(engine, threads.into_iter().map(join).collect())
    })
}

/// The failure of the rank that failed first, for the others only report that they stopped because of it; or else what
/// the first rank returned.
fn first_cause<T>(engine: &dyn Engine, results: Vec<(Rank, Result<T, TrainError>)>) -> Result<T, TrainError> {
    let culprit = engine.failure().map(|(rank, _)| rank);
    let (mut failure, mut value) = (None, None);
    for (rank, result) in results {
        match result {
            Err(error) if culprit == Some(rank) => return Err(error),
            Err(error) => failure = failure.or(Some(error)),
            Ok(returned) => value = value.or(Some(returned)),
        }
    }
    match (failure, value) {
        (Some(error), _) => Err(error),
        (None, Some(value)) => Ok(value),
        (None, None) => Err(TrainError::Prepare("there are no ranks to run".into())),
    }
}

/// A rank that could not report its own failure; the others are informed.
fn lost(engine: &dyn Engine, rank: Rank, cause: String) -> TrainError {
    let (kind, about) = (CauseKind::Other, None);
    let failure =
        RankFailure { rank, step: 0, excerpt: String::new(), instruction: "start".into(), cause, kind, about };
    engine.abort(rank, &failure.to_string());
    TrainError::Rank(failure)
}

/// Runs one rank; a failure is reported to all others at once.
fn guarded<T>(
    setup: &Setup,
    engine: &dyn Engine,
    number: Rank,
    body: impl Fn(RankLaunch<'_>) -> Result<T, Stop>,
) -> Result<T, TrainError> {
    let progress = Progress::default();
    let launched = RankLaunch { setup, engine, number, progress: &progress };
    let cause = match catch_unwind(AssertUnwindSafe(|| body(launched))) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(Stop::Together(error))) => return Err(error),
        Ok(Err(Stop::Failed(cause))) => cause,
        Err(panic) => {
            let text = format!("panicked: {}", panic_message(&*panic));
            StopCause { kind: CauseKind::Panic, about: None, text }
        }
    };
    let failure = describe(setup, number, &progress, cause);
    engine.abort(number, &failure.to_string());
    Err(TrainError::Rank(failure))
}

fn describe(setup: &Setup, rank: Rank, progress: &Progress, cause: StopCause) -> RankFailure {
    let stage = setup.mesh.coord(rank).along(Axis::Pp);
    let at = progress.at.get().map(|(workload, at)| (setup.program_of(workload, stage).instrs.as_slice(), at));
    RankFailure {
        rank,
        step: progress.step.get(),
        excerpt: at.map_or(String::new(), |(instrs, at)| excerpt(instrs, at)),
        instruction: at.map_or("start".into(), |(instrs, at)| instrs[at].to_string()),
        cause: cause.text,
        kind: cause.kind,
        about: cause.about,
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
