//! Logits and loss of given sequences, under any parallelism: the forward pass as a check for other programs.

use config::{Microbatch, Unit};
use device::DeviceError;

use crate::engine::Engine;
use crate::execute::reduce;
use crate::infer::evaluate::{Evaluation, EvaluationReport, HeldOut, evaluate, evaluating_workload};
use crate::run::failure::TrainError;
use crate::run::launch::{Flow, Stop, launch};
use crate::setup::start::Start;
use crate::setup::{Setup, WorkloadIndex};
use crate::storage::source::TensorSource;
use crate::worker::Worker;
use crate::worker::batch::TokenSource;

/// Takes logits.
pub trait LogitsSink: Sync {
    /// `logits[S, V]`, row-major, of sequence `sequence`. Every sequence comes once, from the ranks' own threads.
    fn put(&self, sequence: u64, logits: &[f32]);
}

/// Computes logits and mean loss of the `train.global_batch` sequences of step 0 of `tokens`, for a [`Setup::forward`].
///
/// # Errors
/// The first rank's failure.
pub fn run_forward(
    setup: &Setup,
    engine: &dyn Engine,
    tokens: &dyn TokenSource,
    initial: Option<&dyn TensorSource>,
    sink: &dyn LogitsSink,
) -> Result<EvaluationReport, TrainError> {
    let evaluation = Evaluation { tokens, sequences: setup.train.global_batch as u64, every: 0 };
    launch(setup, engine, engine.ranks().into_iter(), |seat| -> Result<_, Stop> {
        let per_pass = HeldOut::new(setup, WorkloadIndex::MAIN, evaluation);
        let measured = HeldOut::new(setup, evaluating_workload(setup), evaluation);
        let mut rank = seat.open(&per_pass, Start::with(initial))?;
        for pass in 0..per_pass.passes() {
            seat.progress.begin_step(pass + 1);
            rank.begin_step(pass)?;
            seat.progress.run_program(&mut rank, |_, _, _| Ok(Flow::GoOn))?;
            reduce::wait_for_all(&rank.ports, &rank.state.constants)?;
            deliver(&rank, per_pass.first_sequence(pass), sink)?;
        }
        Ok(evaluate(&mut rank, &measured, 0, seat.progress)?)
    })
}

/// Hands over the logits of the program that has just run; of each tensor-parallel group the first rank does.
fn deliver(worker: &Worker<'_>, first_of_pass: u64, sink: &dyn LogitsSink) -> Result<(), DeviceError> {
    if !worker.position.program.view.computes(Unit::Head) || !worker.position.rank.model.is_first() {
        return Ok(());
    }
    let first = first_of_pass + worker.position.order.first_sequence(Microbatch(0));
    let length = worker.position.shape.sequence_length;
    for sequence in 0..worker.position.shape.sequences {
        let rows = sequence * length..(sequence + 1) * length;
        sink.put(first + sequence as u64, &worker.read_logits(rows)?);
    }
    Ok(())
}
