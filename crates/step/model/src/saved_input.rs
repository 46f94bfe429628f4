//! The input of a layer that is recomputed, sharded over the tensor-parallel group until then. For residuals that are
//! replicated; with sequence parallelism a layer's input is sharded anyway.

use device::{DeviceError, Frame, Op, Tensor};

use crate::context::Context;
use crate::placement::Residual;

/// Room for this rank's run of rows `[T/tp, D]`.
pub fn lay_out(frame: &Frame, context: &Context) -> Tensor {
    context.activation(frame, context.run_of_rows().len(), context.model.hidden)
}

/// `saved_input[T/tp, D]` assigned: this rank's run of the rows of `input[T, D]`.
///
/// # Errors
/// The device's.
pub fn keep(context: &Context, input: Residual, saved_input: Tensor) -> Result<(), DeviceError> {
    context.submit(Op::Copy { from: input.tensor().rows_of(context.run_of_rows()), to: saved_input })
}

/// `input[T, D]` assigned: the rows that all ranks kept, the same bits as [`keep`] was given.
///
/// # Errors
/// The device's and the communicator's.
pub fn restore(context: &Context, saved_input: Tensor, input: Residual) -> Result<(), DeviceError> {
    context.submit(Op::Copy { from: saved_input, to: input.tensor().rows_of(context.run_of_rows()) })?;
    context.tp.all_gather(context.stream, input.tensor())
}
