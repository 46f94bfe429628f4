//! The loss on sequences that are not trained on: between steps of a run, or alone. Training state is neither read nor
//! written.

use std::time::{Duration, Instant};

use config::{IGNORED_LABEL, Recheck};
use device::{COUNT_WORD, DeviceError, Op, SUM_WORDS, Stream, Tensor};
use program::{Instr, Purpose};

use crate::engine::Engine;
use crate::execute::reduce;
use crate::ranks::failure::TrainError;
use crate::ranks::launch::{Flow, Moment, Progress, launch};
use crate::setup::source::TensorSource;
use crate::setup::start::Start;
use crate::setup::{Setup, WorkloadIndex};
use crate::stop_request::StopRequest;
use crate::worker::Worker;
use crate::worker::batch::{SequenceBuffers, TokenSource};
use crate::worker::rank_state::zero_sums;

/// The measured text, and the steps after which it is measured.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    /// The held-out sequences, those of step 0.
    pub tokens: &'a dyn TokenSource,
    /// How many there are.
    pub sequences: u64,
    /// Steps from one measurement to the next; 0 measures after the last step only.
    pub every: u32,
}

/// A text of its own that is measured in addition to the held-out one.
#[derive(Clone, Copy)]
pub struct Validation<'a> {
    /// The name of its losses.
    pub name: &'a str,
    /// Its sequences, and the steps after which they are measured.
    pub evaluation: Evaluation<'a>,
}

impl Evaluation<'_> {
    /// Whether the evaluation runs after `steps` steps. It always runs after the last step, but not where a run was
    /// stopped.
    pub fn is_due_after(&self, steps: u32) -> bool {
        self.every > 0 && steps.is_multiple_of(self.every)
    }
}

/// A measurement, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationReport {
    /// Steps that were done before; 0 where the run does not train.
    pub step: u32,
    /// Mean over all valid tokens, in nats.
    pub loss: f64,
    /// Valid tokens.
    pub tokens: u64,
    /// Wall time on rank 0.
    pub wall: Duration,
}

/// Measures the loss of the weights of `initial` (or of the seed) on `evaluation`'s sequences.
///
/// # Errors
/// The first rank's failure.
pub fn run_evaluation(
    setup: &Setup,
    engine: &dyn Engine,
    evaluation: Evaluation<'_>,
    initial: Option<&dyn TensorSource>,
) -> Result<EvaluationReport, TrainError> {
    launch(setup, engine, engine.ranks().into_iter(), |launched| {
        let tokens = HeldOut::new(setup, evaluating_workload(setup), evaluation);
        let mut rank = launched.open(&tokens, Start::with(initial), Recheck::Off)?;
        Ok(evaluate_whole(&mut rank, &tokens, launched.progress)?)
    })
}

/// The workload of a setup that is known to have one.
pub(crate) fn evaluating_workload(setup: &Setup) -> WorkloadIndex {
    setup.workload(Purpose::Evaluate).unwrap_or(WorkloadIndex::MAIN)
}

/// The passes of an evaluation as steps; the last sequence is followed by empty ones, whose labels do not count.
pub(crate) struct HeldOut<'a> {
    tokens: &'a dyn TokenSource,
    sequences: u64,
    sequences_per_pass: u64,
}

impl<'a> HeldOut<'a> {
    /// As the program of `workload` takes them.
    pub(crate) fn new(setup: &Setup, workload: WorkloadIndex, evaluation: Evaluation<'a>) -> HeldOut<'a> {
        HeldOut {
            tokens: evaluation.tokens,
            sequences: evaluation.sequences,
            sequences_per_pass: setup.workload_of(workload).sequences(&setup.parallelism) as u64,
        }
    }

    /// Index of the first sequence of a pass.
    pub(crate) fn first_sequence(&self, pass: u32) -> u64 {
        u64::from(pass) * self.sequences_per_pass
    }

    pub(crate) fn passes(&self) -> u32 {
        self.sequences.div_ceil(self.sequences_per_pass) as u32
    }
}

impl TokenSource for HeldOut<'_> {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let index = self.first_sequence(step) + sequence;
        if index < self.sequences {
            return self.tokens.fill(0, index, buffers);
        }
        buffers.tokens.fill(0);
        buffers.labels.fill(IGNORED_LABEL);
        buffers.positions.fill(0);
        buffers.visible.as_chunks_mut().0.fill([0, 1]);
    }
}

/// Who may end a measurement before its last pass, on this rank.
pub(crate) trait Listener {
    /// Asked in every pass: [`StopRequest::Stop`] of one rank ends the measurement on all of them after this pass.
    fn stop_request(&mut self) -> StopRequest;

    /// Called after each pass with the share that is done.
    fn measured(&mut self, share: f64, elapsed: Duration);
}

/// A measurement that nobody ends.
struct Uninterrupted;

impl Listener for Uninterrupted {
    fn stop_request(&mut self) -> StopRequest {
        StopRequest::None
    }

    fn measured(&mut self, _share: f64, _elapsed: Duration) {}
}

/// Measures where no run trains.
pub(crate) fn evaluate_whole<'a>(
    worker: &mut Worker<'a>,
    tokens: &'a HeldOut<'a>,
    progress: &Progress,
) -> Result<EvaluationReport, DeviceError> {
    let sums = add_passes(worker, tokens, progress, &mut Uninterrupted)?;
    sums.report(worker, 0)
}

/// Measures between steps, on all ranks. `None`, on all of them, where one requested to stop before the last pass.
pub(crate) fn evaluate<'a>(
    worker: &mut Worker<'a>,
    tokens: &'a HeldOut<'a>,
    (step, progress): (u32, &Progress),
    listener: &mut dyn Listener,
) -> Result<Option<EvaluationReport>, DeviceError> {
    let interrupted = (worker.position.workload, worker.ports.source);
    let sums = add_passes(worker, tokens, progress, listener)?;
    let report = if sums.is_stopped { None } else { Some(sums.report(worker, step)?) };
    worker.take_up(interrupted.0, interrupted.1);
    Ok(report)
}

/// The sums of the passes that were done.
struct PassSums {
    words: [i64; SUM_WORDS],
    is_stopped: bool,
    started: Instant,
}

impl PassSums {
    fn report(&self, worker: &Worker<'_>, step: u32) -> Result<EvaluationReport, DeviceError> {
        let loss = mean_loss(worker, &self.words)?;
        let tokens = self.words[COUNT_WORD] as u64;
        Ok(EvaluationReport { step, loss, tokens, wall: self.started.elapsed() })
    }
}

/// Runs the evaluating program as often as there are passes and adds their sums, which are integers: the same bits
/// whatever the layout.
fn add_passes<'a>(
    worker: &mut Worker<'a>,
    tokens: &'a HeldOut<'a>,
    progress: &Progress,
    listener: &mut dyn Listener,
) -> Result<PassSums, DeviceError> {
    let mut sums = PassSums { words: [0; SUM_WORDS], is_stopped: false, started: Instant::now() };
    worker.take_up(evaluating_workload(worker.position.setup), tokens);
    for pass in 0..tokens.passes() {
        worker.begin_step(pass)?;
        let stop_request = listener.stop_request();
        progress.run_program(worker, |worker, moment, instr| {
            if (moment, instr) == (Moment::Before, Instr::GradNorm) {
                reduce::vote(&*worker.ports.device, &worker.state.constants, stop_request)?;
            }
            Ok(Flow::Continue)
        })?;
        let of_pass = read_sums(worker, worker.state.constants.loss_sums)?;
        sums.words.iter_mut().zip(of_pass).for_each(|(total, word)| *total = total.wrapping_add(word));
        let is_last = pass + 1 == tokens.passes();
        if !is_last && read_sums(worker, worker.state.constants.norm_sums)?[COUNT_WORD] > 0 {
            sums.is_stopped = true;
            break;
        }
        listener.measured(f64::from(pass + 1) / f64::from(tokens.passes()), sums.started.elapsed());
    }
    Ok(sums)
}

fn read_sums(worker: &Worker<'_>, sums: Tensor) -> Result<[i64; SUM_WORDS], DeviceError> {
    let mut words = [0i64; SUM_WORDS];
    worker.ports.device.read(sums, bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}

/// The device reads the sums as it reads those of a step.
fn mean_loss(worker: &Worker<'_>, total: &[i64; SUM_WORDS]) -> Result<f64, DeviceError> {
    let constants = &worker.state.constants;
    worker.ports.device.write(constants.loss_sums, bytemuck::cast_slice(total))?;
    zero_sums(&*worker.ports.device, Stream::Reduce, constants.norm_sums)?;
    let op = Op::ClipCoefficient {
        norm_sums: constants.norm_sums,
        loss_sums: constants.loss_sums,
        nominal_tokens: 1.0,
        loss_scale: 1.0,
        clip_norm: None,
        out: constants.coefficient,
    };
    worker.ports.device.submit(Stream::Reduce, &op)?;
    Ok(reduce::read_outcome(worker)?.loss)
}
