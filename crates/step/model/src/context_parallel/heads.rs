//! Attention of some heads on whole sequences: an all-to-all gives each rank its share of the heads, of the tokens of
//! all ranks, and another one gives the outputs back (Ulysses, Jacobs et al. 2023, arXiv 2309.14509).
//!
//! The output of a head depends on the queries, keys and values of its sequence alone, and these are moved, not
//! changed. So outputs and all gradients of queries, keys and values have the bits of one rank. Of what a layer keeps,
//! a rank has its own tokens alone; only the log-sum-exps are kept as they are made, for its heads of all tokens, which
//! is as much.

use device::{Alibi, AttentionGradients, AttentionOperands, AttentionShape, DeviceError, DropoutKey, Op, Tensor};

use super::keys_values::KeysValues;
use super::slices;
use crate::context::{Batch, Context};

/// Rows of all tokens of the sequences.
fn rows_of_all(context: &Context) -> usize {
    context.shape.slices.ranks * context.shape.tokens()
}

/// Whole sequences, and this rank's share of the heads.
fn share(context: &Context, shape: &AttentionShape) -> AttentionShape {
    let ranks = context.shape.slices.ranks;
    AttentionShape {
        sequences: shape.sequences,
        sequence_length: context.shape.sequence_length,
        heads: shape.heads / ranks,
        kv_heads: shape.kv_heads / ranks,
        head_dim: shape.head_dim,
    }
}

/// `all` cut into columns of these widths.
fn columns<const N: usize>(all: Tensor, widths: [usize; N]) -> [Tensor; N] {
    let mut first = 0;
    widths.map(|width| {
        first += width;
        all.cols_of(first - width..first)
    })
}

/// The share of each rank in the columns of `tensors[T, ..]`, as rows of a buffer of all ranks' shares: `(own, in the
/// buffer)`.
fn shares<const N: usize>(context: &Context, tensors: [Tensor; N], all: Tensor) -> Vec<(Tensor, Tensor)> {
    let (ranks, tokens) = (context.shape.slices.ranks, context.shape.tokens());
    let widths = tensors.map(|tensor| tensor.cols / ranks);
    let of_rank = |rank: usize| {
        let parts = columns(all.rows_of(rank * tokens..(rank + 1) * tokens), widths);
        let own = tensors.map(|tensor| tensor.cols_of(tensor.cols / ranks * rank..tensor.cols / ranks * (rank + 1)));
        own.into_iter().zip(parts)
    };
    (0..ranks).flat_map(of_rank).collect()
}

/// This rank's share of the columns of `tensors[T, ..]`, for all tokens of the sequences, in scratch.
fn to_heads<const N: usize>(context: &Context, tensors: [Tensor; N]) -> Result<[Tensor; N], DeviceError> {
    let (rows, widths) = (rows_of_all(context), tensors.map(|tensor| tensor.cols / context.shape.slices.ranks));
    let all = context.activation(context.scratch, rows, widths.iter().sum());
    context.scratch.scoped(|| {
        let received = context.activation(context.scratch, rows, all.cols);
        // Until it has been sent, what is sent has the place of the result.
        for (own, part) in shares(context, tensors, all) {
            context.submit(Op::Copy { from: own, to: part })?;
        }
        context.cp.all_to_all(context.stream, all, received)?;
        slices::in_order(context, received, all)
    })?;
    Ok(columns(all, widths))
}

/// Gives each rank the rows of its tokens of `all[B S, ..]`, whose columns are side by side this rank's share of those
/// of `tensors[T, ..]`, which are assigned. `all` is unspecified afterwards.
fn to_tokens<const N: usize>(context: &Context, all: Tensor, tensors: [Tensor; N]) -> Result<(), DeviceError> {
    context.scratch.scoped(|| {
        let sent = context.activation(context.scratch, all.rows, all.cols);
        slices::by_rank(context, all, sent)?;
        context.cp.all_to_all(context.stream, sent, all)?;
        shares(context, tensors, all)
            .into_iter()
            .try_for_each(|(own, part)| context.submit(Op::Copy { from: part, to: own }))
    })
}

/// The operands of this rank's heads: those of `whole`, with queries, keys, values and outputs of all tokens.
fn of_share(
    context: &Context,
    batch: &Batch,
    whole: &AttentionOperands,
    [q, k, v, out]: [Tensor; 4],
) -> AttentionOperands {
    let (shape, visible) = (share(context, &whole.shape), batch.visible_in(whole.window));
    let first_head = context.cp.position() * shape.heads;
    AttentionOperands {
        shape,
        places: None,
        q,
        k,
        v,
        visible: visible.of_all.unwrap_or(visible.own),
        window: whole.window,
        scale: whole.scale,
        soft_cap: whole.soft_cap,
        alibi: whole.alibi.map(|alibi| Alibi { first_head: alibi.first_head + first_head, ..alibi }),
        dropout: whole.dropout.map(|key| DropoutKey { first_channel: key.first_channel + first_head as u32, ..key }),
        out,
        log_sum_exp: whole.log_sum_exp.reshaped(rows_of_all(context), shape.heads),
    }
}

/// The forward pass of `whole`, whose tokens are this rank's.
///
/// # Errors
/// The device's and the communicator's.
pub(super) fn forward(context: &Context, batch: &Batch, whole: &AttentionOperands) -> Result<(), DeviceError> {
    context.scratch.scoped(|| {
        let [q, k, v] = to_heads(context, [whole.q, whole.k, whole.v])?;
        let out = context.activation(context.scratch, q.rows, q.cols);
        context.submit(Op::Attention { operands: of_share(context, batch, whole, [q, k, v, out]) })?;
        to_tokens(context, out, [whole.out])
    })
}

/// Gradients `dq[T, H d]` and `to[T, K d]` of queries, keys and values of `whole`, assigned from `dout[T, H d]`.
///
/// # Errors
/// The device's and the communicator's.
pub(super) fn backward(
    context: &Context,
    batch: &Batch,
    whole: &AttentionOperands,
    [dout, dq]: [Tensor; 2],
    to: KeysValues,
) -> Result<(), DeviceError> {
    let shape = share(context, &whole.shape);
    let widths = [shape.heads, shape.kv_heads, shape.kv_heads].map(|heads| heads * shape.head_dim);
    let rows = rows_of_all(context);
    context.scratch.scoped(|| {
        let all = context.activation(context.scratch, rows, widths.iter().sum());
        context.scratch.scoped(|| {
            let [q, k, v, out, dout] = to_heads(context, [whole.q, whole.k, whole.v, whole.out, dout])?;
            let [dq, dk, dv] = columns(all, widths);
            let key_sums = context.scratch.floats(2 * rows * shape.kv_heads, shape.head_dim);
            let operands = of_share(context, batch, whole, [q, k, v, out]);
            let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
            context.submit(Op::AttentionBackward { operands, gradients })
        })?;
        to_tokens(context, all, [dq, to.k, to.v])
    })
}
