//! The losses of sequences that several ranks share: added in the order of tokens, as one rank adds them.

use device::{DeviceError, Op, Tensor};

use super::slices;
use crate::context::{Batch, Context};

/// Adds losses of the microbatch to `sums` of the step: `loss[1, T]` of this rank. A sequence's losses are rounded
/// once, so where ranks share it, the first of them has those of all and adds them.
///
/// # Errors
/// The device's and the communicator's.
pub(crate) fn add(context: &Context, batch: &Batch, loss: Tensor, sums: Tensor) -> Result<(), DeviceError> {
    let sequences = context.shape.sequences;
    let (Some(labels), ranks) = (batch.labels_of_all, context.shape.slices.ranks) else {
        return context.submit(Op::LossSum { loss, labels: batch.labels, sequences, sums });
    };
    context.scratch.scoped(|| {
        let (tokens, position) = (loss.len(), context.cp.position());
        let (all, parts) = (context.scratch.floats(ranks * tokens, 1), context.scratch.floats(ranks * tokens, 1));
        let own = parts.rows_of(position * tokens..(position + 1) * tokens);
        context.submit(Op::Copy { from: loss.reshaped(tokens, 1), to: own })?;
        context.cp.all_gather(context.stream, parts)?;
        if position > 0 {
            return Ok(());
        }
        slices::in_order(context, parts, all)?;
        context.submit(Op::LossSum { loss: all.reshaped(1, ranks * tokens), labels, sequences, sums })
    })
}
