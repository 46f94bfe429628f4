//! Logits and loss of given sequences, under any parallelism: the forward pass as a check for other programs.

use config::{Microbatch, Recheck, Unit};
use device::DeviceError;

use crate::engine::Engine;
use crate::execute::reduce;
use crate::infer::evaluate::{Evaluation, EvaluationReport, HeldOut, evaluate_whole, evaluating_workload};
use crate::ranks::failure::TrainError;
use crate::ranks::launch::{Flow, Stop, launch};
use crate::setup::source::TensorSource;
use crate::setup::start::Start;
use crate::setup::{Setup, WorkloadIndex};
use crate::storage::gathered::MESSAGE_ELEMENTS;
use crate::storage::sink::LogitsSink;
use crate::worker::Worker;
use crate::worker::batch::TokenSource;

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
    launch(setup, engine, engine.ranks().into_iter(), |launched| -> Result<_, Stop> {
        let per_pass = HeldOut::new(setup, WorkloadIndex::MAIN, evaluation);
        let measured = HeldOut::new(setup, evaluating_workload(setup), evaluation);
        let mut rank = launched.open(&per_pass, Start::with(initial), Recheck::Off)?;
        for pass in 0..per_pass.passes() {
            launched.progress.begin_step(pass + 1);
            rank.begin_step(pass)?;
            launched.progress.run_program(&mut rank, |_, _, _| Ok(Flow::Continue))?;
            reduce::wait_for_all(&rank.ports, &rank.state.constants)?;
            deliver(&rank, per_pass.first_sequence(pass), sink)?;
        }
        Ok(evaluate_whole(&mut rank, &measured, launched.progress)?)
    })
}

/// Hands over the logits of the program that has just run, in blocks of rows that fit into a message; of each
/// tensor-parallel group the first rank does.
fn deliver(worker: &Worker<'_>, first_of_pass: u64, sink: &dyn LogitsSink) -> Result<(), DeviceError> {
    if !worker.position.program.view.computes(Unit::Head) || !worker.position.rank.model.is_first() {
        return Ok(());
    }
    let first = first_of_pass + worker.position.order.first_sequence(Microbatch(0));
    let shape = worker.position.shape;
    let rows_at_once = (MESSAGE_ELEMENTS / worker.position.setup.model.vocabulary).max(1);
    let mut row = 0;
    for sequence in 0..shape.sequences as u64 {
        for chunk in shape.slices.chunks(shape.sequence_length, worker.position.rank.slice) {
            for token in chunk.clone().step_by(rows_at_once) {
                let rows = row..row + rows_at_once.min(chunk.end - token);
                row = rows.end;
                sink.put(first + sequence, token, &worker.read_logits(rows)?);
            }
        }
    }
    Ok(())
}
