//! A whole run: ranks start, steps pass, results are delivered. One rank is not a special case.

pub mod observer;
pub mod run_products;
pub mod samples;
pub mod step_verdict;
pub mod stragglers;
pub mod work_times;

use std::time::{Duration, Instant};

use checkpoint::{CheckpointFolder, PieceCollector, ProcessWriter, SavedIn};
use config::{Overlap, Recheck};
use device::{DeviceError, DeviceKind};
use mesh::Rank;
use program::{Instr, Purpose};

use crate::engine::Engine;
use crate::execute::{reduce, routers};
use crate::infer::evaluate::{Evaluation, HeldOut, Listener, Validation, evaluate, evaluating_workload};
use crate::ranks::failure::TrainError;
use crate::ranks::launch::{Flow, Moment, Progress, RankLaunch, Stop, launch};
use crate::ranks::rings::Rings;
use crate::recheck::state_hashes::StateHashes;
use crate::run::observer::{LossScalingReport, Observer, StepReport};
use crate::run::samples::{SampledTexts, Samples};
use crate::run::step_verdict::StepVerdict;
use crate::run::work_times::WorkTimes;
use crate::setup::Setup;
use crate::setup::start::{Start, check_tensors};
use crate::stop_request::StopRequest;
use crate::storage::deliver;
use crate::storage::saving::{SavePort, Saving, start_saving};
use crate::storage::sink::TensorSink;
use crate::worker::Worker;
use crate::worker::batch::TokenSource;
use crate::worker::loss_scale::UpdateOutcome;

/// The sources that a run reads from, and the receivers of its reports.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// Where tokens come from.
    pub tokens: &'a dyn TokenSource,
    /// Hears of every step.
    pub observer: &'a dyn Observer,
    /// Where the run begins.
    pub start: Start<'a>,
    /// Takes the gradients of the first step that updates weights, of the mean loss, before clipping.
    pub first_gradients: Option<&'a dyn TensorSink>,
    /// Takes the weights after the last step.
    pub weights: Option<&'a dyn TensorSink>,
    /// Takes the state between steps and after the last one.
    pub saving: Option<Saving<'a>>,
    /// The evaluation between steps, by a setup that has a program for it.
    pub evaluation: Option<Evaluation<'a>>,
    /// Texts that are measured after it, in this order.
    pub validation: &'a [Validation<'a>],
    /// Texts that are generated between steps, by a setup that has a program for it.
    pub samples: Option<Samples<'a>>,
    /// How much is checked for wrong bits.
    pub recheck: Recheck,
    /// Where ranks keep their last instructions for the report of a failure.
    pub rings: Option<&'a Rings>,
}

impl<'a> Ports<'a> {
    /// A run from drawn weights of which only the reports are kept.
    pub fn new(tokens: &'a dyn TokenSource, observer: &'a dyn Observer) -> Ports<'a> {
        let start = Start::Seed;
        Ports {
            tokens,
            observer,
            start,
            first_gradients: None,
            weights: None,
            saving: None,
            evaluation: None,
            validation: &[],
            samples: None,
            recheck: Recheck::Off,
            rings: None,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps were done.
    Finished,
    /// The observer requested to stop after this many steps.
    Stopped {
        /// Steps done.
        steps: u32,
    },
}

/// Runs `setup` on `engine`: one thread per rank of this process, until the last step or the observer's request to
/// stop.
///
/// # Errors
/// The first rank's failure, with its step and instruction; every other rank stops because of it.
pub fn run(setup: &Setup, engine: &dyn Engine, ports: Ports<'_>) -> Result<Ending, TrainError> {
    run_ranks(setup, engine, ports, engine.ranks().into_iter())
}

/// Runs as [`run`] does, but only some of the ranks of the engine, none of which waits for another.
///
/// # Errors
/// The errors of [`run`].
pub fn run_ranks(
    setup: &Setup,
    engine: &dyn Engine,
    ports: Ports<'_>,
    ranks: impl Iterator<Item = Rank>,
) -> Result<Ending, TrainError> {
    if (ports.evaluation.is_some() || !ports.validation.is_empty()) && setup.workload(Purpose::Evaluate).is_none() {
        return Err(TrainError::Prepare("the run is to be evaluated, but was set up without a program for it".into()));
    }
    if ports.samples.is_some() && samples::generating_workload(setup).is_none() {
        return Err(TrainError::Prepare("the run is to generate, but was set up without a program for it".into()));
    }
    if let Some(checkpoint) = ports.start.checkpoint() {
        let (state, steps) = (checkpoint.state(), setup.train.steps);
        check_tensors(checkpoint, &setup.model, &setup.train)
            .map_err(|error| TrainError::Prepare(format!("{}: {error}", checkpoint.path().display())))?;
        let first_sequence = setup.train.batches().at(state.steps).first_sequence;
        // A run that returns to a checkpoint may leave out data.
        if state.steps > steps || state.sequences > first_sequence {
            return Err(TrainError::Prepare(format!(
                "{} is after {} steps and {} sequences; the run has {steps} steps, and that one begins at sequence {first_sequence}",
                checkpoint.path().display(),
                state.steps,
                state.sequences
            )));
        }
    }
    let ranks: Vec<Rank> = ranks.collect();
    let writer = ProcessWriter::new(ranks.len());
    let save_port = ports.saving.map(|saving| SavePort { writer: &writer, collector: saving.collector });
    launch(setup, engine, ranks.into_iter(), |launched| run_rank(launched, ports, save_port))
}

/// The work of ranks before their first step, as rings name it.
const START: &str = "open the rank, fill its weights and compare programs";

fn run_rank(launched: RankLaunch<'_>, ports: Ports<'_>, save_port: Option<SavePort<'_>>) -> Result<Ending, Stop> {
    let measured = Measured::of(launched.setup, &ports);
    launched.progress.keep_in(ports.rings.and_then(|rings| rings.open(launched.setup.groups(), launched.number)));
    let report = |report| ports.observer.saved(report);
    std::thread::scope(|scope| {
        let mut rank = launched.progress.named(START, || launched.open(ports.tokens, ports.start, ports.recheck))?;
        if let (Some(save_port), Some(memory)) = (save_port, rank.ports.memory.take()) {
            let stream = start_saving(scope, &rank, launched.number, memory, (save_port, &report))?;
            rank.ports.saving = Some(stream);
        }
        let ending = run_steps(&mut rank, launched, &ports, &measured)?;
        if let Some(sink) = ports.weights {
            launched.progress.named("deliver weights", || deliver::weights(&rank, sink))?;
        }
        Ok(ending)
    })
}

/// The texts that are measured and generated between steps.
struct Measured<'a> {
    held_out: Option<(Evaluation<'a>, HeldOut<'a>)>,
    validation: Vec<(Validation<'a>, HeldOut<'a>)>,
    samples: Option<SampledTexts<'a>>,
}

impl<'a> Measured<'a> {
    fn of(setup: &Setup, ports: &Ports<'a>) -> Measured<'a> {
        let sequences = |evaluation| HeldOut::new(setup, evaluating_workload(setup), evaluation);
        Measured {
            held_out: ports.evaluation.map(|evaluation| (evaluation, sequences(evaluation))),
            validation: ports.validation.iter().map(|own| (*own, sequences(own.evaluation))).collect(),
            samples: ports.samples.map(|samples| SampledTexts::new(setup, samples)),
        }
    }
}

/// The steps that are left, with what is measured and saved between them.
fn run_steps<'a>(
    worker: &mut Worker<'a>,
    launched: RankLaunch<'a>,
    ports: &Ports<'a>,
    measured: &'a Measured<'a>,
) -> Result<Ending, Stop> {
    let RankLaunch { setup, number, progress, .. } = launched;
    // Elsewhere the rank's own thread only hands work over.
    let overlap = setup.parallelism.overlap_or_off();
    let is_timed = launched.engine.describe().device == DeviceKind::CPU && overlap == Overlap::Off;
    let mut stop_request = StopRequest::None;
    let mut hashes = StateHashes::new(ports.recheck, worker);
    hashes.take(&*worker.ports.device, ports.start.steps(), Duration::ZERO)?;
    for step in ports.start.steps()..setup.train.steps {
        let started = Instant::now();
        progress.begin_step(step + 1);
        worker.take_up(setup.training_workload(step), ports.tokens);
        let stop_check = StopCheck { stop_request, is_asking: number.0 == 0, observer: ports.observer };
        let (outcome, verdict) = run_step(worker, step, stop_check, (progress, &mut hashes))?;
        let scaled_by = worker.state.loss_scale;
        if is_timed {
            ports.observer.rank_step(WorkTimes::of_step(worker, number));
        }
        let (update, anomaly) = step_verdict::conclude(worker, &outcome, verdict).map_err(Stop::Together)?;
        if let (true, Some(sink)) = (is_first_update(worker, update), ports.first_gradients) {
            deliver::gradients(worker, sink, &outcome)?;
        }
        let of_routers = if number.0 == 0 { routers::report(worker, step + 1)? } else { None };
        if update == UpdateOutcome::Updated {
            routers::update(worker)?;
        }
        if number.0 == 0 {
            let loss_scaling = scaled_by.is_dynamic().then(|| LossScalingReport {
                factor: scaled_by.factor(),
                update,
                skipped_steps: worker.state.loss_scale.skipped_steps(),
            });
            if let Some(report) = &of_routers {
                ports.observer.routers(report);
            }
            let routers = of_routers.map(|report| report.figures);
            let report = report(setup, step, &outcome, started);
            stop_request = ports.observer.step(&StepReport { loss_scaling, anomaly, routers, ..report });
        }
        hashes.take(&*worker.ports.device, step + 1, started.elapsed())?;
        let is_last = step + 1 == setup.train.steps;
        let due = ports.saving.and_then(|saving| match is_last || outcome.stop {
            true => Some((saving, saving.disk.folder)),
            false => saving.folder_after(step + 1).map(|folder| (saving, folder)),
        });
        let is_on_disk = |(_, folder): &(Saving<'a>, &'a CheckpointFolder)| folder.data() == SavedIn::Disk;
        // Before measurements, which may take long: an end in one of them loses no step.
        let saved = due.filter(is_on_disk);
        saved.map_or(Ok(()), |due| save(worker, due, step + 1, progress))?;
        // A request to stop skips the measurement.
        if outcome.stop {
            return Ok(Ending::Stopped { steps: step + 1 });
        }
        let collector = saved.map(|(saving, _)| saving.collector);
        let mut stop_check = StopCheck { stop_request, ..stop_check };
        let ended = measure(worker, (measured, collector), (step + 1, is_last), (&mut stop_check, progress))?;
        stop_request = stop_check.stop_request;
        let is_stopped = ended == Measurement::Stopped;
        // The memory of hosts ends with the run.
        let rest = if is_stopped { ports.saving.map(|saving| (saving, saving.disk.folder)) } else { due };
        if saved.is_none() {
            rest.map_or(Ok(()), |due| save(worker, due, step + 1, progress))?;
        }
        if is_stopped {
            return Ok(Ending::Stopped { steps: step + 1 });
        }
    }
    Ok(Ending::Finished)
}

/// Begins to save the state after `steps` steps.
fn save<'a>(
    worker: &mut Worker<'a>,
    (saving, folder): (Saving<'a>, &CheckpointFolder),
    steps: u32,
    progress: &Progress,
) -> Result<(), DeviceError> {
    let state = saving.state(worker, steps);
    progress.named("begin to save", || worker.save(state, folder))
}

/// How the measurements between two steps ended, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measurement {
    Done,
    /// A rank requested to stop meanwhile.
    Stopped,
}

/// Measures and generates what is due after `steps` steps. `collector` takes the held-out loss, where the state after
/// these steps is saved.
fn measure<'a>(
    worker: &mut Worker<'a>,
    (measured, collector): (&'a Measured<'a>, Option<&dyn PieceCollector>),
    (steps, is_last): (u32, bool),
    (stop_check, progress): (&mut StopCheck<'_>, &Progress),
) -> Result<Measurement, Stop> {
    let is_due = |evaluation: &Evaluation<'_>| is_last || evaluation.is_due_after(steps);
    if let Some((_, tokens)) = measured.held_out.as_ref().filter(|(evaluation, _)| is_due(evaluation)) {
        let Some(report) = evaluate(worker, tokens, (steps, progress), stop_check)? else {
            return Ok(Measurement::Stopped);
        };
        if stop_check.is_asking {
            if let Some(Err(error)) = collector.map(|collector| collector.measured(steps, report.loss)) {
                stop_check.observer.loss_not_saved(steps, &error);
            }
            stop_check.observer.evaluation(&report);
        }
    }
    for (own, tokens) in measured.validation.iter().filter(|(own, _)| is_due(&own.evaluation)) {
        let Some(report) = evaluate(worker, tokens, (steps, progress), stop_check)? else {
            return Ok(Measurement::Stopped);
        };
        if stop_check.is_asking {
            stop_check.observer.validation(own.name, &report);
        }
    }
    if let Some(texts) = measured.samples.as_ref().filter(|texts| texts.samples.is_due_after(steps)) {
        let reports = samples::sample(worker, texts, steps, progress)?;
        if stop_check.is_asking {
            reports.iter().for_each(|report| stop_check.observer.sampled(report));
        }
    }
    Ok(Measurement::Done)
}

/// Whether the step that has just been done was the first to update weights.
fn is_first_update(worker: &Worker<'_>, update: UpdateOutcome) -> bool {
    update == UpdateOutcome::Updated && worker.position.step == worker.state.loss_scale.skipped_steps()
}

fn report(setup: &Setup, step: u32, outcome: &reduce::StepOutcome, started: Instant) -> StepReport {
    StepReport {
        step: step + 1,
        loss: outcome.loss,
        z_loss: outcome.z_loss,
        routers: None,
        gradient_norm: outcome.norm,
        loss_scaling: None,
        anomaly: None,
        learning_rate: setup.train.learning_rate_at(step),
        tokens: setup.train.batches().at(step).sequences * setup.train.sequence_length,
        valid_tokens: outcome.valid,
        wall: started.elapsed(),
    }
}

/// The observer and the newest stop request, as a rank has them between two steps.
#[derive(Clone, Copy)]
struct StopCheck<'a> {
    /// The request after the step before.
    stop_request: StopRequest,
    /// Whether this rank asks the observer: rank 0 does, for all.
    is_asking: bool,
    observer: &'a dyn Observer,
}

impl StopCheck<'_> {
    fn newest(&self) -> StopRequest {
        if self.is_asking && self.stop_request == StopRequest::None {
            self.observer.stop_request()
        } else {
            self.stop_request
        }
    }
}

impl Listener for StopCheck<'_> {
    fn stop_request(&mut self) -> StopRequest {
        self.stop_request = self.newest();
        self.stop_request
    }

    fn measured(&mut self, share: f64, elapsed: Duration) {
        if self.is_asking {
            self.observer.evaluating(share, elapsed);
        }
    }
}

/// Executes one step's program. Its sums are read before the first update, so that nothing changes where they are not
/// finite.
fn run_step(
    worker: &mut Worker<'_>,
    step: u32,
    stop_check: StopCheck<'_>,
    (progress, hashes): (&Progress, &mut StateHashes),
) -> Result<(reduce::StepOutcome, StepVerdict), DeviceError> {
    worker.begin_step(step)?;
    let mut outcome = reduce::StepOutcome::default();
    let mut verdict = StepVerdict::default();
    let mut is_verified = false;
    let ran = progress.run_program(worker, |worker, moment, instr| {
        match (moment, instr) {
            (Moment::Before, Instr::GradNorm) => {
                // Before any weight changes, and before other ranks learn the sums of this one.
                is_verified = true;
                hashes.verify(&*worker.ports.device)?;
                reduce::vote(&*worker.ports.device, &worker.state.constants, stop_check.newest())?
            }
            (Moment::After, Instr::GradNorm) => {
                outcome = reduce::read_outcome(worker)?;
                verdict = step_verdict::judge(worker, &outcome);
            }
            (Moment::Before | Moment::After, _) => {}
        }
        if moment == Moment::After {
            stop_check.observer.instruction(worker)?;
        }
        Ok(if verdict.leaves_weights { Flow::End } else { Flow::Continue })
    });
    if matches!(ran, Err(DeviceError::Corrupted { .. })) && !is_verified {
        // If it is state that has changed, its hashes have more to tell.
        hashes.verify(&*worker.ports.device)?;
    }
    ran.map(|()| (outcome, verdict))
}
