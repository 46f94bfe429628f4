//! The values of a run that do not depend on its layout, by structural names, and where ranks hold them.

use std::cmp::Reverse;
use std::fmt;

use config::{Microbatch, SequenceParallel, Unit};
use device::Tensor;
use mesh::Region;
use program::{Family, Pass, PassKind};
use serde::{Deserialize, Serialize};
use train::{Copies, UnitState, Worker, pieces};

use crate::message_forms::{ReverseForm, UnitForm};

/// A value of a run. In this order a value depends on no later one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueName {
    /// Counted from 1.
    pub step: u32,
    /// The value of the step.
    pub what: ValueKind,
}

/// A value of a step. Units and their borders are compared, not what is within them: there ranks hold shares and
/// pending sums.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ValueKind {
    /// Output of a unit, `[tokens of the step, D]`.
    Output(#[serde(with = "UnitForm")] Unit),
    /// Mean loss `[1]`.
    Loss,
    /// Gradient of a unit's output, `[tokens of the step, D]`. The last unit's is made first.
    OutputGradient(#[serde(with = "ReverseForm")] Reverse<Unit>),
    /// Sum of a parameter's gradient over the step, before the factor that makes it that of the mean loss.
    Gradient(#[serde(with = "ReverseForm")] Reverse<Unit>, String),
    /// Global norm of the gradient `[1]`.
    Norm,
    /// A parameter as the optimizer updated it.
    Weight(#[serde(with = "UnitForm")] Unit, String),
}

impl fmt::Display for ValueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: ", self.step)?;
        match &self.what {
            ValueKind::Output(unit) => write!(f, "output of {unit}, forward"),
            ValueKind::Loss => f.write_str("loss"),
            ValueKind::OutputGradient(Reverse(unit)) => write!(f, "gradient of the output of {unit}, backward"),
            ValueKind::Gradient(_, name) => write!(f, "gradient of {name}"),
            ValueKind::Norm => f.write_str("norm of the gradient"),
            ValueKind::Weight(_, name) => write!(f, "weight {name}"),
        }
    }
}

/// A box of a value on one rank, row-major in `tensor`.
#[derive(Clone, Debug)]
pub struct ValueBox {
    /// Which value.
    pub what: ValueKind,
    /// Global shape of the value.
    pub shape: Vec<usize>,
    /// The box.
    pub region: Region,
    /// Its numbers.
    pub tensor: Tensor,
    /// The microbatch that it belongs to, if it is of one.
    pub microbatch: Option<Microbatch>,
}

/// This rank's parts of the values that instruction `rank.position.at` of a training step has finished. Within a run,
/// the boxes of a value are equal or have nothing in common.
pub fn finished(worker: &Worker<'_>) -> Vec<ValueBox> {
    let instrs = &worker.position.program.instrs;
    let mut boxes = match instrs[worker.position.at].family() {
        Family::Pass(Pass { kind: PassKind::Forward, unit: unit @ (Unit::Embedding | Unit::Layer(_)), microbatch }) => {
            let output = worker.position.activations().output(unit, microbatch);
            of_tokens(worker, &ValueKind::Output(unit), output.tensor(), microbatch)
        }
        Family::Pass(Pass { kind: PassKind::BackwardInput, unit, microbatch }) => {
            let previous = unit.previous(worker.position.setup.model.num_layers);
            let value_box = |previous| {
                let gradient = worker.position.activations().output_grad(previous, microbatch);
                of_tokens(worker, &ValueKind::OutputGradient(Reverse(previous)), gradient.tensor(), microbatch)
            };
            previous.into_iter().flat_map(value_box).collect()
        }
        Family::GradNorm => of_reduction(worker),
        Family::Pass(Pass { kind: PassKind::Forward | PassKind::Recompute | PassKind::BackwardWeight, .. }) => vec![],
        Family::Load { .. } | Family::Transfer { .. } | Family::Gather { .. } | Family::Reduce { .. } => vec![],
        Family::SumTied | Family::Update { .. } | Family::CopyState { .. } => vec![],
        Family::CopyActs { .. } | Family::Bookkeeping { .. } => vec![],
    };
    if worker.position.at + 1 == instrs.len() {
        boxes.extend(worker.state.units.values().flat_map(|state| weights(worker, state)));
    }
    boxes
}

/// The rows of a microbatch that this rank holds, at their places among those of all replicas: in one box where they
/// are consecutive.
fn of_tokens(worker: &Worker<'_>, what: &ValueKind, tensor: Tensor, microbatch: Microbatch) -> Vec<ValueBox> {
    let shape = worker.position.shape;
    let first_of_microbatch = worker.position.order.first_sequence(microbatch) as usize * shape.sequence_length;
    let first_held = match worker.position.setup.parallelism.sequence_parallel {
        SequenceParallel::Off => 0,
        SequenceParallel::On => worker.position.rank.tensor.position * tensor.rows,
    };
    let held = first_held..first_held + tensor.rows;
    let sequences = worker.position.setup.train.batches().at(worker.position.step).sequences;
    let value_box = |first_row: usize, tensor: Tensor| ValueBox {
        what: what.clone(),
        shape: vec![sequences * shape.sequence_length, tensor.cols],
        region: Region { start: vec![first_of_microbatch + first_row, 0], extent: vec![tensor.rows, tensor.cols] },
        tensor,
        microbatch: Some(microbatch),
    };
    if shape.slices.ranks == 1 {
        return vec![value_box(first_held, tensor)];
    }
    let runs = shape.runs(worker.position.rank.slice).filter_map(|run| run.within(&held));
    runs.map(|run| {
        let rows = run.rows.start - first_held..run.rows.end - first_held;
        value_box(run.rows_of_all(shape.sequence_length).start, tensor.rows_of(rows))
    })
    .collect()
}

/// Loss, norm, and the gradients of which this rank has the sum over all ranks.
fn of_reduction(worker: &Worker<'_>) -> Vec<ValueBox> {
    let coefficient = worker.state.constants.coefficient;
    let number = |what, index: usize| ValueBox {
        what,
        shape: vec![1],
        region: Region::whole(&[1]),
        tensor: coefficient.elements(index..index + 1),
        microbatch: None,
    };
    let mut boxes = vec![number(ValueKind::Norm, 1), number(ValueKind::Loss, 2)];
    for state in worker.state.units.values() {
        let Some(gradient) = worker.position.gradient(state) else { continue };
        let tensor = gradient.part(state.updated.clone());
        boxes.extend(of_parameters(worker, state, state.updated.start, tensor, |name| {
            ValueKind::Gradient(Reverse(state.unit), name)
        }));
    }
    boxes
}

fn weights(worker: &Worker<'_>, state: &UnitState) -> Vec<ValueBox> {
    let held = state.weights();
    of_parameters(worker, state, held.elements.start, held.tensor, |name| ValueKind::Weight(state.unit, name))
}

/// The parameters, or parts of them, in `tensor`, which holds the elements of the unit's flat buffer from `first` on.
fn of_parameters(
    worker: &Worker<'_>,
    state: &UnitState,
    first: usize,
    tensor: Tensor,
    what: impl Fn(String) -> ValueKind,
) -> Vec<ValueBox> {
    let listed =
        pieces(&state.layout, first..first + tensor.len(), worker.position.rank.model, Copies::Every).into_iter();
    let boxes = listed.map(|piece| ValueBox {
        what: what(piece.param.name.clone()),
        shape: piece.param.shape.clone(),
        region: piece.region,
        tensor: tensor.elements(piece.elements.start - first..piece.elements.end - first),
        microbatch: None,
    });
    boxes.collect()
}
