//! Attention where ranks share the tokens of every sequence: one way for each [`ContextKind`].

use config::ContextKind;
use device::{AttentionOperands, DeviceError, Tensor};

use super::keys_values::KeysValues;
use super::{gather, heads, ring};
use crate::context::{Batch, Context};

/// The forward pass of `whole`, whose keys and values are this rank's.
///
/// # Errors
/// The device's and the communicator's.
pub(crate) fn forward(context: &Context, batch: &Batch, whole: &AttentionOperands) -> Result<(), DeviceError> {
    match context.shape.slices.kind {
        ContextKind::Gather => gather::forward(context, whole),
        ContextKind::Heads => heads::forward(context, batch, whole),
        ContextKind::Ring => ring::forward(context, whole),
    }
}

/// Gradients `dq[T, H d]` and `to[T, K d]` of queries, keys and values of `whole`, assigned from `dout[T, H d]`.
///
/// # Errors
/// The device's and the communicator's.
pub(crate) fn backward(
    context: &Context,
    batch: &Batch,
    whole: &AttentionOperands,
    gradients: [Tensor; 2],
    to: KeysValues,
) -> Result<(), DeviceError> {
    match context.shape.slices.kind {
        ContextKind::Gather => gather::backward(context, whole, gradients, to),
        ContextKind::Heads => heads::backward(context, batch, whole, gradients, to),
        ContextKind::Ring => ring::backward(context, whole, gradients, to),
    }
}
