//! Choices of experts of whole sequences, where several ranks share these: a capacity compares the weights of all
//! tokens of a sequence, which no count of a rank's own tokens replaces.

use device::{DeviceError, Op, Tensor};

use super::slices;
use crate::context::Context;

/// Assigns `all[B S, C]`, the rows `own[T, C]` of all ranks, in the order of tokens. Elements of four bytes of any type
/// are moved as they are.
///
/// # Errors
/// The device's and the communicator's.
pub(crate) fn gather(context: &Context, own: Tensor, all: Tensor) -> Result<(), DeviceError> {
    let [own, all] = [own, all].map(Tensor::in_words);
    let (tokens, position) = (own.rows, context.cp.position());
    context.scratch.scoped(|| {
        let parts = context.scratch.floats(all.rows, all.cols);
        let to = parts.rows_of(position * tokens..(position + 1) * tokens);
        context.submit(Op::Copy { from: own, to })?;
        context.cp.all_gather(context.stream, parts)?;
        slices::in_order(context, parts, all)
    })
}

/// Whether this rank counts for all that share its sequences.
pub(crate) fn counts(context: &Context) -> bool {
    context.cp.position() == 0
}

/// Assigns `own[T, C]`, this rank's rows of `all[B S, C]`: the reverse of [`gather`].
///
/// # Errors
/// The device's.
pub(crate) fn own_rows(context: &Context, all: Tensor, own: Tensor) -> Result<(), DeviceError> {
    let [all, own] = [all, own].map(Tensor::in_words);
    let length = context.shape.sequence_length;
    context.shape.runs(context.cp.position()).try_for_each(|run| {
        context.submit(Op::Copy { from: all.rows_of(run.rows_of_all(length)), to: own.rows_of(run.rows) })
    })
}
