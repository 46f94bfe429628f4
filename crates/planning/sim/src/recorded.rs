//! The passes of every unit as an accelerator runs them: recorded once, priced for any profile.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cluster::{HeadKernels, RecomputedLayers, Software};
use comm::CollectiveCall;
use config::{LayerRecompute, PerClass, UnitClass};
use device::Op;
use mesh::Axis;
use program::PassKind;
use record::{RecordCase, UnitRecord, UnitRecords};

use crate::backward_graph::as_one_graph;
use crate::kept_beyond::{KeptBeyond, keeps_norms};
use crate::kernel::{Kernel, kernels};
use crate::overlapped::{Issued, issued};

/// One pass of one unit on one microbatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassWork {
    /// The kernels of the accelerator, in order.
    pub kernels: Vec<Kernel>,
    /// Collectives of the tensor-parallel and the context-parallel group between them.
    pub collectives: Vec<CollectiveCall>,
    /// The order of both, where some collectives overlap with kernels; empty where all are between them.
    pub order: Vec<Issued>,
    /// Floating-point operations of matrix products and causal attention, whatever the kernels do for them.
    pub flops: f64,
}

/// All passes of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitWork {
    pub forward: PassWork,
    /// Recomputing what the forward pass did not keep.
    pub recompute: PassWork,
    pub backward_input: PassWork,
    pub backward_weight: PassWork,
    /// Memory that it keeps beyond its footprint.
    pub kept: KeptBeyond,
}

impl UnitWork {
    /// The same, whose floating-point operations are those of `other`.
    fn with_flops_of(self, other: &UnitWork) -> UnitWork {
        let of = |own: PassWork, other: &PassWork| PassWork { flops: other.flops, ..own };
        UnitWork {
            forward: of(self.forward, &other.forward),
            recompute: of(self.recompute, &other.recompute),
            backward_input: of(self.backward_input, &other.backward_input),
            backward_weight: of(self.backward_weight, &other.backward_weight),
            kept: self.kept,
        }
    }

    /// One of them.
    pub fn of(&self, kind: PassKind) -> &PassWork {
        match kind {
            PassKind::Forward => &self.forward,
            PassKind::Recompute => &self.recompute,
            PassKind::BackwardInput => &self.backward_input,
            PassKind::BackwardWeight => &self.backward_weight,
        }
    }
}

/// The passes of all units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedUnits {
    /// The passes of one unit; the head's forward pass computes gradients, too, and the table computes nothing.
    pub units: PerClass<UnitWork>,
}

impl RecordedUnits {
    /// The recorded operations, as an accelerator runs them; with `software`, as the kernels of that trainer.
    pub fn new(records: &UnitRecords, software: Option<&Software>) -> RecordedUnits {
        RecordedUnits::of_load(records, software, 1.0)
    }

    /// Returns the same as [`RecordedUnits::new`], where the rank that all wait for has `expert_load` times the rows
    /// of experts that balanced routing gives. Floating-point operations are those of the model, whatever the load.
    pub fn of_load(records: &UnitRecords, software: Option<&Software>, expert_load: f64) -> RecordedUnits {
        let case = records.case();
        let units = records.units().map(|class, passes| {
            let work = unit_work(class, passes, case, software);
            if expert_load == 1.0 {
                return work;
            }
            let of_load = passes.each_ref().map(|pass| loaded(pass, expert_load));
            unit_work(class, &of_load, case, software).with_flops_of(&work)
        });
        RecordedUnits { units }
    }
}

/// The pass with `load` times as many rows of experts, in operations and between ranks that divide them.
fn loaded(pass: &UnitRecord, load: f64) -> UnitRecord {
    let mut pass = pass.clone();
    for op in &mut pass.record.submitted {
        if let Op::Experts(experts) = op {
            *experts = experts.of_load(load);
        }
    }
    let of_rows = |call: &&mut CollectiveCall| call.operation.is_exchange() && call.axes == Axis::Ep.into();
    for call in pass.collectives.iter_mut().filter(of_rows) {
        call.bytes = (call.bytes as f64 * load).ceil() as usize;
    }
    pass
}

fn unit_work(
    class: UnitClass,
    passes: &[UnitRecord; PassKind::ALL.len()],
    case: &RecordCase,
    software: Option<&Software>,
) -> UnitWork {
    let pass = |phase: PassKind| {
        let unit = &passes[phase as usize];
        let at_once = class == UnitClass::Head && software.is_some_and(|software| software.head == HeadKernels::Whole);
        let ops = run_by(software, phase, &unit.record.submitted);
        PassWork {
            kernels: kernels(&ops, case.tp.size, software),
            collectives: if at_once { without_chunks(&unit.collectives) } else { unit.collectives.clone() },
            order: software.map_or_else(|| issued(unit), |_| vec![]),
            flops: flops(&ops),
        }
    };
    let forward = pass(PassKind::Forward);
    let ops = |phase: PassKind| &passes[phase as usize].record.submitted[..];
    let backward = [PassKind::BackwardInput, PassKind::BackwardWeight].map(ops);
    let kept = KeptBeyond::new(case, ops(PassKind::Forward), backward, software);
    let runs_forward = software.is_some_and(|software| software.recomputed_layers == RecomputedLayers::WholeForward);
    let recompute = match (case.recompute, class) {
        (LayerRecompute::Everything(_), UnitClass::Layer(_)) if runs_forward => forward.clone(),
        (LayerRecompute::Everything(_) | LayerRecompute::Core | LayerRecompute::Nothing, _) => {
            pass(PassKind::Recompute)
        }
    };
    let [backward_input, backward_weight] = [PassKind::BackwardInput, PassKind::BackwardWeight].map(pass);
    let mut work = UnitWork { forward, recompute, backward_input, backward_weight, kept };
    if let Some(software) = software {
        as_one_graph(&mut work, class, case, ops(PassKind::Forward), software);
    }
    work
}

/// The operations of a pass without those whose results `software` kept.
fn run_by<'a>(software: Option<&Software>, phase: PassKind, ops: &'a [Op]) -> Cow<'a, [Op]> {
    match phase {
        PassKind::BackwardInput if keeps_norms(software) => {
            ops.iter().filter(|op| !matches!(op, Op::Norm { .. })).copied().collect::<Vec<Op>>().into()
        }
        PassKind::Forward | PassKind::Recompute | PassKind::BackwardInput | PassKind::BackwardWeight => ops.into(),
    }
}

/// Collectives of chunks of tokens as one each over all tokens.
fn without_chunks(calls: &[CollectiveCall]) -> Vec<CollectiveCall> {
    let mut sums: BTreeMap<CollectiveCall, usize> = BTreeMap::new();
    for call in calls.iter().copied() {
        *sums.entry(call).or_default() += 1;
    }
    sums.into_iter().map(|(call, number)| CollectiveCall { bytes: call.bytes * number, ..call }).collect()
}

fn flops(ops: &[Op]) -> f64 {
    ops.iter().map(|op| 2.0 * op.cost().multiply_adds as f64).sum()
}
