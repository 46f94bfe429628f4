//! Bytes that a trainer keeps from a forward pass beyond the footprint of a unit.

use std::collections::BTreeMap;

use cluster::{
    AttentionKernels, CheapOutputs, GatheredInputs, HeadKernels, Rotated, Software, TrainerMemory, WeightGradients,
};
use config::SequenceParallel;
use device::{AttentionOperands, Op};
use record::RecordCase;

/// Bytes of one unit and microbatch that its footprint does not tell apart, or that another trainer keeps beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptBeyond {
    /// Kept by the forward pass until the backward pass.
    pub(crate) saved: usize,
    /// The same within the attention core.
    pub(crate) core: usize,
    /// The attention core's output: pleach computes it again with the core, others keep it.
    pub(crate) core_output: usize,
    /// Gradients of the widest activations.
    pub(crate) pending: usize,
    /// Borrowed by the attention core's backward pass.
    pub(crate) borrowed: usize,
    /// Bytes of one gradient of each shape of weight, by rows and columns.
    pub(crate) weight_gradients: BTreeMap<(usize, usize), usize>,
    /// Logits that are alive at once.
    pub(crate) logits: usize,
    /// As many of pleach's.
    pub(crate) chunk: usize,
}

impl KeptBeyond {
    /// Values that a forward pass, and the backward passes of the input and of the weights, leave in the memory of
    /// `software`, or of pleach.
    pub(crate) fn new(
        case: &RecordCase,
        forward: &[Op],
        [backward_input, backward_weight]: [&[Op]; 2],
        software: Option<&Software>,
    ) -> KeptBeyond {
        let mut kept = KeptBeyond::default();
        if software.is_some_and(|software| software.memory.weight_gradients == WeightGradients::KeptPerShape) {
            kept.weight_gradients = one_of_each_shape(backward_weight);
        }
        if keeps_norms(software) {
            kept.saved = norm_outputs(backward_input) * ranks_of_kept_inputs(case, software);
        }
        let mut all_logits = 0;
        for op in forward {
            if let Op::CrossEntropy { logits, .. } = op {
                kept.chunk = kept.chunk.max(logits.size_bytes());
                all_logits += logits.len();
            }
            if let Some(software) = software {
                kept.add(op, software);
            }
        }
        kept.logits = match software {
            Some(Software { head: HeadKernels::Whole, memory, .. }) => {
                let all_logits = all_logits as f64 * software.map_or(1.0, |one| one.logits_per_own(case.tp.size));
                (all_logits * memory.logit_bytes) as usize
            }
            Some(Software { head: HeadKernels::Chunks, .. }) | None => kept.chunk,
        };
        kept
    }

    fn add(&mut self, op: &Op, software: &Software) {
        let TrainerMemory {
            activation_outputs,
            norm_kept_bytes,
            activation_kept_bytes,
            rotated,
            dropout_mask_bytes,
            ..
        } = software.memory;
        let mask = |elements: usize| (elements as f64 * dropout_mask_bytes) as usize;
        if let Op::Activation { x, y, .. } = op {
            self.pending = x.size_bytes();
            self.saved += if activation_outputs == CheapOutputs::Kept { y.size_bytes() } else { 0 };
            self.saved += (y.len() as f64 * activation_kept_bytes) as usize;
        }
        if let Op::Norm { x, .. } = op {
            self.saved += (x.len() as f64 * norm_kept_bytes) as usize;
        }
        if let Op::DropoutAdd { dropout: Some(_), out, .. } = op {
            self.saved += mask(out.len());
        }
        if let (Op::Rotary { x, .. }, Rotated::Beside) = (op, rotated) {
            self.core += x.size_bytes();
        }
        if let Op::Attention { operands: AttentionOperands { shape, q, dropout, out, .. } } = op {
            self.core_output = out.size_bytes();
            if software.attention == AttentionKernels::Unfused {
                let scores = shape.sequences * shape.heads * shape.sequence_length * shape.sequence_length;
                let stored = scores * q.dtype.size_bytes();
                // The softmax; with dropout also what is left of it, and the mask.
                self.core += stored + dropout.map_or(0, |_| stored + mask(scores));
                self.borrowed = 2 * stored;
            }
        }
    }
}

/// Whether outputs of norms are kept, so that no backward pass computes them again.
pub(crate) fn keeps_norms(software: Option<&Software>) -> bool {
    software.is_some_and(|software| software.memory.norm_outputs == CheapOutputs::Kept)
}

/// How many ranks' tokens of a norm's output a rank keeps.
fn ranks_of_kept_inputs(case: &RecordCase, software: Option<&Software>) -> usize {
    match (case.sequence_parallel, software.map(|software| software.gathered_inputs)) {
        (SequenceParallel::On, Some(GatheredInputs::Kept)) => case.tp.size,
        (SequenceParallel::On, Some(GatheredInputs::GatheredAgain) | None) | (SequenceParallel::Off, _) => 1,
    }
}

/// Bytes of the norms' outputs that a backward pass recomputes.
fn norm_outputs(backward_input: &[Op]) -> usize {
    let outputs = backward_input.iter().filter_map(|op| if let Op::Norm { y, .. } = op { Some(y) } else { None });
    outputs.map(|y| y.size_bytes()).sum()
}

/// Bytes of one result of each shape, in the width of activations.
fn one_of_each_shape(backward_weight: &[Op]) -> BTreeMap<(usize, usize), usize> {
    let mut shapes = BTreeMap::new();
    for op in backward_weight {
        if let Op::MatMul { a, out, .. } = op {
            shapes.insert((out.rows, out.cols), out.len() * a.dtype.size_bytes());
        }
    }
    shapes
}
