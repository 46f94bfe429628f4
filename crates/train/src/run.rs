//! A whole run: ranks start, steps pass, results are delivered. One rank is no special case.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use device::DeviceError;
use mesh::Rank as RankNumber;
use program::{Instr, save_instrs};

use crate::batch::TokenSource;
use crate::deliver;
use crate::engine::Engine;
use crate::failure::{RankFailure, TrainError, excerpt};
use crate::observer::{Observer, StepReport, Wish};
use crate::rank::Rank;
use crate::reduce;
use crate::setup::Setup;
use crate::sink::TensorSink;
use crate::source::TensorSource;

/// What a run reads from and reports to.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// Where tokens come from.
    pub tokens: &'a dyn TokenSource,
    /// Hears of every step.
    pub observer: &'a dyn Observer,
    /// Where the weights come from before the first step; without, they are drawn from the seed.
    pub initial: Option<&'a dyn TensorSource>,
    /// Takes the gradients of the first step, of the mean loss, before clipping.
    pub first_gradients: Option<&'a dyn TensorSink>,
    /// Takes the weights after the last step.
    pub weights: Option<&'a dyn TensorSink>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps were done.
    Finished,
    /// The observer wished to stop after this many steps.
    Stopped {
        /// Steps done.
        steps: u32,
    },
}

/// Runs `setup` on `engine`: one thread per rank, until the last step or the observer's wish.
///
/// # Errors
/// The first rank's failure, with its step and instruction; every other rank stops because of it.
pub fn run(setup: &Setup, engine: &dyn Engine, ports: Ports<'_>) -> Result<Ending, TrainError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            setup.mesh.ranks().map(|rank| (rank, scope.spawn(move || guarded(setup, engine, ports, rank)))).collect();
        let join = |(rank, thread): (RankNumber, std::thread::ScopedJoinHandle<'_, _>)| {
            thread.join().unwrap_or_else(|_| Err(TrainError::Rank(unexplained(rank))))
        };
        let results: Vec<Result<Ending, TrainError>> = threads.into_iter().map(join).collect();
        first_cause(engine, results)
    })
}

/// The result of the rank that failed first; the others only report that they stopped because of it.
fn first_cause(engine: &dyn Engine, results: Vec<Result<Ending, TrainError>>) -> Result<Ending, TrainError> {
    let culprit = engine.failure().map(|(rank, _)| rank);
    let mut ending = Ok(Ending::Finished);
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Err(error) if culprit == Some(RankNumber(rank)) => return Err(error),
            Err(error) if ending.is_ok() => ending = Err(error),
            Ok(stopped) if ending.is_ok() => ending = Ok(stopped),
            Ok(_) | Err(_) => {}
        }
    }
    ending
}

fn unexplained(rank: RankNumber) -> RankFailure {
    RankFailure { rank, step: 0, excerpt: String::new(), instruction: "start".into(), cause: "its thread ended".into() }
}

/// Where a rank is, so that a panic can be told with its step and instruction.
#[derive(Default)]
struct Progress {
    step: Cell<u32>,
    at: Cell<Option<usize>>,
}

/// Runs one rank; whatever goes wrong is told to all others at once.
fn guarded(setup: &Setup, engine: &dyn Engine, ports: Ports<'_>, number: RankNumber) -> Result<Ending, TrainError> {
    let progress = Progress::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| run_rank(setup, engine, ports, number, &progress)));
    let cause = match outcome {
        Ok(Ok(ending)) => return Ok(ending),
        Ok(Err(Stop::NotFinite(error))) => return Err(error),
        Ok(Err(Stop::Failed(cause))) => cause,
        Err(panic) => format!("panicked: {}", panic_message(&*panic)),
    };
    let failure = describe(setup, number, &progress, cause);
    engine.abort(number, &failure.to_string());
    Err(TrainError::Rank(failure))
}

fn describe(setup: &Setup, rank: RankNumber, progress: &Progress, cause: String) -> RankFailure {
    let stage = setup.mesh.coord(rank).along(mesh::Axis::Pp);
    let instructions: &[Instr] = &setup.program(stage).instrs;
    let at = progress.at.get();
    RankFailure {
        rank,
        step: progress.step.get(),
        excerpt: at.map_or(String::new(), |at| excerpt(instructions, at)),
        instruction: at.map_or("start".into(), |at| instructions[at].to_string()),
        cause,
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Why a rank stops before the end.
enum Stop {
    /// Seen by all ranks at once.
    NotFinite(TrainError),
    /// Seen by this rank.
    Failed(String),
}

impl<E: std::error::Error> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.to_string())
    }
}

fn run_rank<'a>(
    setup: &'a Setup,
    engine: &dyn Engine,
    ports: Ports<'a>,
    number: RankNumber,
    progress: &Progress,
) -> Result<Ending, Stop> {
    let coord = setup.mesh.coord(number);
    let arena_bytes = setup.plan(coord.along(mesh::Axis::Pp)).arena_bytes();
    let mut rank = Rank::open(setup, coord, ports.tokens, ports.initial, engine.open(number, arena_bytes)?)?;
    let mut wish = Wish::Continue;
    let mut ending = Ending::Finished;
    for step in 0..setup.train.steps {
        let started = Instant::now();
        progress.step.set(step + 1);
        let outcome = run_step(&mut rank, step, wish, progress)?;
        if outcome.not_finite {
            return Err(Stop::NotFinite(TrainError::NotFinite {
                step: step + 1,
                loss: outcome.loss,
                gradient_norm: outcome.norm,
            }));
        }
        if let (0, Some(sink)) = (step, ports.first_gradients) {
            deliver::gradients(&rank, sink, &outcome)?;
        }
        if number.0 == 0 {
            wish = ports.observer.step(&report(setup, step, &outcome, started));
        }
        if outcome.stop {
            ending = Ending::Stopped { steps: step + 1 };
            break;
        }
    }
    save(&mut rank, ports.weights)?;
    Ok(ending)
}

/// Runs the save program, if anyone takes what is saved.
fn save<'a>(rank: &mut Rank<'a>, sink: Option<&'a dyn TensorSink>) -> Result<(), DeviceError> {
    rank.storage = sink;
    for instr in save_instrs(&rank.program.place) {
        rank.execute(instr)?;
    }
    Ok(())
}

fn report(setup: &Setup, step: u32, outcome: &reduce::StepOutcome, started: Instant) -> StepReport {
    StepReport {
        step: step + 1,
        loss: outcome.loss,
        gradient_norm: outcome.norm,
        learning_rate: setup.train.learning_rate_at(step),
        tokens: setup.train.global_batch * setup.train.sequence_length,
        wall: started.elapsed(),
    }
}

/// Executes one step's program. The result is read before the first update, so that nothing changes where it is not finite.
fn run_step(
    rank: &mut Rank<'_>,
    step: u32,
    wish: Wish,
    progress: &Progress,
) -> Result<reduce::StepOutcome, DeviceError> {
    rank.begin_step(step)?;
    let mut outcome = None;
    for at in 0..rank.program.instrs.len() {
        let instr = rank.program.instrs[at];
        progress.at.set(Some(at));
        rank.at = at;
        if let Instr::GradNorm = instr {
            reduce::vote(rank, wish)?;
        }
        rank.execute(instr)?;
        if let Instr::GradNorm = instr {
            let read = reduce::read_outcome(rank)?;
            if read.not_finite {
                return Ok(read);
            }
            outcome = Some(read);
        }
    }
    progress.at.set(None);
    Ok(outcome.unwrap_or_default())
}
