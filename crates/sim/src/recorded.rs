//! The passes of every unit kind as an accelerator runs them: recorded once, priced for any profile.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cluster::{HeadKernels, RecomputedLayers, Software};
use comm::CollectiveCall;
use config::LayerRecompute;
use config::unit::UnitKind;
use device::Op;
use model::{Phase, UnitRecords};
use program::PassKind;

use crate::kernel::{Kernel, kernels};
use crate::memory::{KeptBeyond, keeps_norms};

/// One pass of one unit on one microbatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassWork {
    /// What the accelerator runs, in order.
    pub kernels: Vec<Kernel>,
    /// Collectives of the tensor-parallel group between them.
    pub collectives: Vec<CollectiveCall>,
    /// Floating-point operations of matrix products and causal attention, whatever the kernels do for them.
    pub flops: f64,
}

/// All passes of a unit kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitWork {
    /// Forward.
    pub forward: PassWork,
    /// Computing again what the forward pass did not keep.
    pub recompute: PassWork,
    /// Backward of the input.
    pub backward_input: PassWork,
    /// Backward of the weights.
    pub backward_weight: PassWork,
    /// What it keeps beyond its footprint.
    pub kept: KeptBeyond,
}

impl UnitWork {
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

/// The passes of all unit kinds that compute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedUnits {
    /// The embedding.
    pub embedding: UnitWork,
    /// One layer.
    pub layer: UnitWork,
    /// The head; its forward pass computes gradients, too.
    pub head: UnitWork,
}

impl RecordedUnits {
    /// What was recorded, as an accelerator runs it; with `software`, as the kernels of that trainer.
    pub fn new(records: &UnitRecords, software: Option<&Software>) -> RecordedUnits {
        let unit = |kind| unit_work(records, kind, software);
        RecordedUnits { embedding: unit(UnitKind::Embedding), layer: unit(UnitKind::Layer), head: unit(UnitKind::Head) }
    }

    /// The passes of one kind; the table computes nothing.
    pub fn of(&self, kind: UnitKind) -> Option<&UnitWork> {
        match kind {
            UnitKind::Table => None,
            UnitKind::Embedding => Some(&self.embedding),
            UnitKind::Layer => Some(&self.layer),
            UnitKind::Head => Some(&self.head),
        }
    }
}

fn unit_work(records: &UnitRecords, kind: UnitKind, software: Option<&Software>) -> UnitWork {
    let pass = |phase| {
        let Some(unit) = records.of(kind, phase) else { return PassWork::default() };
        let at_once = kind == UnitKind::Head && software.is_some_and(|software| software.head == HeadKernels::Whole);
        let ops = run_by(software, phase, &unit.record.submitted);
        PassWork {
            kernels: kernels(&ops, software),
            collectives: if at_once { without_chunks(&unit.collectives) } else { unit.collectives.clone() },
            flops: flops(&ops),
        }
    };
    let forward = pass(Phase::Forward);
    let ops = |phase| records.of(kind, phase).map_or(&[][..], |unit| &unit.record.submitted);
    let backward = [Phase::BackwardInput, Phase::BackwardWeight].map(ops);
    let kept = KeptBeyond::new(ops(Phase::Forward), backward, software);
    let runs_forward = software.is_some_and(|software| software.recomputed_layers == RecomputedLayers::WholeForward);
    let recompute = match records.case().recompute {
        LayerRecompute::Everything(_) if runs_forward && kind == UnitKind::Layer => forward.clone(),
        LayerRecompute::Everything(_) | LayerRecompute::Core | LayerRecompute::Nothing => pass(Phase::Recompute),
    };
    UnitWork {
        forward,
        recompute,
        backward_input: pass(Phase::BackwardInput),
        backward_weight: pass(Phase::BackwardWeight),
        kept,
    }
}

/// The operations of a pass without those whose results `software` kept.
fn run_by<'a>(software: Option<&Software>, phase: Phase, ops: &'a [Op]) -> Cow<'a, [Op]> {
    match phase {
        Phase::BackwardInput if keeps_norms(software) => {
            ops.iter().filter(|op| !matches!(op, Op::Norm { .. })).copied().collect::<Vec<Op>>().into()
        }
        Phase::Forward | Phase::Recompute | Phase::BackwardInput | Phase::BackwardWeight => ops.into(),
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
