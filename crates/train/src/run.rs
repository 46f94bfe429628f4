//! A whole run: ranks start, steps pass, results are delivered. One rank is no special case.

use std::time::Instant;

use device::DeviceError;
use mesh::Rank as RankNumber;
use program::{Instr, Purpose, save_instrs};

use crate::batch::TokenSource;
use crate::deliver;
use crate::engine::Engine;
use crate::evaluate::{Evaluation, HeldOut, evaluate, evaluating_job};
use crate::failure::TrainError;
use crate::launch::{Flow, Moment, Progress, Seat, Stop, launch};
use crate::loss_scale::StepFate;
use crate::observer::{LossScalingReport, Observer, StepReport, Wish};
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
    /// Takes the gradients of the first step that updates weights, of the mean loss, before clipping.
    pub first_gradients: Option<&'a dyn TensorSink>,
    /// Takes the weights after the last step.
    pub weights: Option<&'a dyn TensorSink>,
    /// What is measured between steps, by a setup that has a program for it.
    pub evaluation: Option<Evaluation<'a>>,
}

impl<'a> Ports<'a> {
    /// A run from drawn weights of which only the reports are kept.
    pub fn new(tokens: &'a dyn TokenSource, observer: &'a dyn Observer) -> Ports<'a> {
        Ports { tokens, observer, initial: None, first_gradients: None, weights: None, evaluation: None }
    }
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
    run_ranks(setup, engine, ports, setup.mesh.ranks())
}

/// As [`run`], for some of the ranks: all that are in this process, or a few on an engine on which none waits for another.
///
/// # Errors
/// As [`run`].
pub fn run_ranks(
    setup: &Setup,
    engine: &dyn Engine,
    ports: Ports<'_>,
    ranks: impl Iterator<Item = RankNumber>,
) -> Result<Ending, TrainError> {
    if ports.evaluation.is_some() && setup.job(Purpose::Evaluate).is_none() {
        return Err(TrainError::Prepare("the run is to be evaluated, but was set up without a program for it".into()));
    }
    launch(setup, engine, ranks, |seat| run_rank(seat, ports))
}

fn run_rank(seat: Seat<'_>, ports: Ports<'_>) -> Result<Ending, Stop> {
    let Seat { setup, number, progress, .. } = seat;
    let held_out =
        ports.evaluation.map(|evaluation| (evaluation, HeldOut::new(setup, evaluating_job(setup), evaluation)));
    let mut rank = seat.open(ports.tokens, ports.initial)?;
    let mut wish = Wish::Continue;
    let mut ending = Ending::Finished;
    for step in 0..setup.train.steps {
        let started = Instant::now();
        progress.begin_step(step + 1);
        rank.take_up(setup.training_job(step), ports.tokens);
        let asked = Asked { wish, speaks: number.0 == 0, observer: ports.observer };
        let outcome = run_step(&mut rank, step, asked, progress)?;
        let scaled_by = rank.loss_scale;
        let fate = fate(&mut rank, &outcome)?;
        if let (true, Some(sink)) = (is_first_update(&rank, fate), ports.first_gradients) {
            deliver::gradients(&rank, sink, &outcome)?;
        }
        if number.0 == 0 {
            let loss_scaling = scaled_by.is_dynamic().then(|| LossScalingReport {
                factor: scaled_by.factor(),
                fate,
                skipped_steps: rank.loss_scale.skipped_steps(),
            });
            wish = ports.observer.step(&StepReport { loss_scaling, ..report(setup, step, &outcome, started) });
        }
        let is_last = step + 1 == setup.train.steps;
        // Who wishes to stop does not wait for a measurement.
        if let Some((evaluation, tokens)) = &held_out
            && !outcome.stop
            && (is_last || evaluation.is_due_after(step + 1))
        {
            let report = evaluate(&mut rank, tokens, step + 1, progress)?;
            if number.0 == 0 {
                ports.observer.evaluation(&report);
            }
        }
        if outcome.stop {
            ending = Ending::Stopped { steps: step + 1 };
            break;
        }
    }
    save(&mut rank, ports.weights)?;
    Ok(ending)
}

/// Whether the step's sums let it update weights; the same answer on every rank, for the same sums.
fn fate(rank: &mut Rank<'_>, outcome: &reduce::StepOutcome) -> Result<StepFate, Stop> {
    let fate = if outcome.not_finite { rank.loss_scale.after_overflow() } else { rank.loss_scale.after_finite() };
    let (step, loss) = (rank.step + 1, outcome.loss);
    match (fate, rank.loss_scale.is_dynamic()) {
        (StepFate::Updated | StepFate::Skipped, _) => Ok(fate),
        (StepFate::Hopeless, true) => Err(Stop::Together(TrainError::Overflow {
            step,
            loss_scale: rank.loss_scale.factor(),
            skipped_steps: rank.loss_scale.skipped_steps(),
            loss,
        })),
        (StepFate::Hopeless, false) => {
            Err(Stop::Together(TrainError::NotFinite { step, loss, gradient_norm: outcome.norm }))
        }
    }
}

/// Whether the step that has just been done was the first to update weights.
fn is_first_update(rank: &Rank<'_>, fate: StepFate) -> bool {
    fate == StepFate::Updated && rank.step == rank.loss_scale.skipped_steps()
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
        loss_scaling: None,
        learning_rate: setup.train.learning_rate_at(step),
        tokens: setup.train.batches().at(step).sequences * setup.train.sequence_length,
        wall: started.elapsed(),
    }
}

/// Whom a rank asks whether the run goes on.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// What was wished after the step before.
    wish: Wish,
    /// Whether this rank asks: one does, for all.
    speaks: bool,
    observer: &'a dyn Observer,
}

impl Asked<'_> {
    fn wish(&self) -> Wish {
        if self.speaks && self.wish == Wish::Continue { self.observer.wish() } else { self.wish }
    }
}

/// Executes one step's program. The result is read before the first update, so that nothing changes where it is not finite.
fn run_step(
    rank: &mut Rank<'_>,
    step: u32,
    asked: Asked<'_>,
    progress: &Progress,
) -> Result<reduce::StepOutcome, DeviceError> {
    rank.begin_step(step)?;
    let mut outcome = reduce::StepOutcome::default();
    progress.run_program(rank, |rank, moment, instr| {
        match (moment, instr) {
            (Moment::Before, Instr::GradNorm) => reduce::vote(rank, asked.wish())?,
            (Moment::After, Instr::GradNorm) => outcome = reduce::read_outcome(rank)?,
            (Moment::Before | Moment::After, _) => {}
        }
        if moment == Moment::After {
            asked.observer.instruction(rank)?;
        }
        Ok(if outcome.not_finite { Flow::End } else { Flow::GoOn })
    })?;
    Ok(outcome)
}
