//! Passes of trainers whose backward pass is one graph of operations: values that it gathers once or not at all, and
//! products that are apart in it.

use cluster::{GatedProducts, GatheredInputs, HeadKernels, Logits, Software};
use comm::{CollectiveCall, Operation};
use config::UnitClass;
use device::Op;
use mesh::Axis;
use record::RecordCase;

use crate::kernel::Kernel;
use crate::recorded::UnitWork;

/// Changes the passes of a unit, recorded as pleach runs them, to those of `software`. `forward` are the operations of
/// its forward pass.
pub(crate) fn as_one_graph(
    unit: &mut UnitWork,
    class: UnitClass,
    case: &RecordCase,
    forward: &[Op],
    software: &Software,
) {
    match software.gathered_inputs {
        GatheredInputs::Kept => unit.backward_weight.collectives.retain(|call| !is_gather_over_tp(call)),
        GatheredInputs::GatheredAgain => {
            let gathered = unit.backward_input.collectives.clone();
            gather_once(&mut unit.backward_weight.collectives, &gathered);
        }
    }
    match software.gated_products {
        GatedProducts::Joined => {}
        GatedProducts::Separate => add_gradients_of_gated(unit, case, forward),
    }
    match (software.head, software.logits, class) {
        (HeadKernels::Whole, Logits::Gathered, UnitClass::Head) => gather_logits(unit, case, forward),
        (HeadKernels::Whole | HeadKernels::Chunks, Logits::Sharded | Logits::Gathered, _) => {}
    }
}

fn is_gather_over_tp(call: &CollectiveCall) -> bool {
    call.operation == Operation::AllGather && call.axes == Axis::Tp.into()
}

/// Leaves out of `later` gathers over tensor parallelism that `earlier` had made: both gradients are computed from one
/// gathered value.
fn gather_once(later: &mut Vec<CollectiveCall>, earlier: &[CollectiveCall]) {
    for call in earlier.iter().filter(|call| is_gather_over_tp(call)) {
        if let Some(at) = later.iter().position(|other| other == call) {
            later.remove(at);
        }
    }
}

/// The kernel that adds the two gradients of the input of a gated block, and without sequence parallelism the sum of
/// one of them over the ranks, besides that of the other.
fn add_gradients_of_gated(unit: &mut UnitWork, case: &RecordCase, forward: &[Op]) {
    let activations =
        forward.iter().filter_map(|op| if let Op::Activation { x, y, .. } = op { Some((x, y)) } else { None });
    for (x, _) in activations.filter(|(x, y)| x.cols == 2 * y.cols) {
        let bytes = x.rows * case.model.hidden * x.dtype.size_bytes();
        unit.backward_input.kernels.push(Kernel::Memory { bytes: 3.0 * bytes as f64 });
        let sums = unit.backward_input.collectives.iter();
        let mut sums = sums.filter(|call| call.operation == Operation::AllReduce && call.axes == Axis::Tp.into());
        if let Some(sum) = sums.next().copied() {
            unit.backward_input.collectives.push(sum);
        }
    }
}

/// The gather of all logits over the ranks, each of which has computed a share.
fn gather_logits(unit: &mut UnitWork, case: &RecordCase, forward: &[Op]) {
    let own = forward
        .iter()
        .filter_map(|op| if let Op::CrossEntropy { logits, .. } = op { Some(logits.len()) } else { None });
    let bytes = own.sum::<usize>() * case.stored.size_bytes() * case.tp.size;
    if case.tp.size > 1 {
        let call = CollectiveCall { axes: Axis::Tp.into(), operation: Operation::AllGather, bytes };
        unit.forward.collectives.push(call);
    }
}
