//! Keys and values, and the queries that attend to them.

use super::slices::TokenRun;
use crate::context::Context;
use device::{AttentionOperands, AttentionShape, Tensor};

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
