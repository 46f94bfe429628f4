//! Attention where ranks share the tokens of every sequence: one way for each [`ContextKind`].

use config::ContextKind;
use device::{AttentionOperands, AttentionShape, DeviceError, Tensor};

use super::slices::TokenRun;
use super::{gather, heads, ring};
use crate::context::{Batch, Context};

/// Keys and values `[T, K d]` of this rank, or their gradients.
#[derive(Clone, Copy)]
pub(crate) struct KeysValues {
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
}

/// The operands of the queries of `run`, which are some of those of `whole`, on `keys`.
pub(super) fn of_queries(
    context: &Context,
    whole: &AttentionOperands,
    run: &TokenRun,
    keys: KeysValues,
) -> AttentionOperands {
    let rows = |tensor: Tensor| tensor.rows_of(run.rows.clone());
    let first = run.rows_of_all(context.shape.sequence_length).start;
    AttentionOperands {
        shape: AttentionShape { sequences: 1, sequence_length: run.rows.len(), ..whole.shape },
        q: rows(whole.q),
        k: keys.k,
        v: keys.v,
        visible: rows(whole.visible),
        dropout: whole.dropout.map(|key| context.key_at_token(key, first)),
        out: rows(whole.out),
        log_sum_exp: rows(whole.log_sum_exp),
        ..*whole
    }
}

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
