//! Attention of a rank's queries on the keys and values of all tokens, which are gathered before each use.
//!
//! The gathered keys and values `[B S, 2 K d]` are in scratch: of what a layer keeps, a rank has its own tokens alone.
//! Each chunk of each sequence is one operation, whose queries follow keys before them as they do with a cache. A
//! query's output depends on its own interval and its keys alone, so it has the bits of one rank. Gradients of keys and
//! values are sums of the ranks' terms, in rank order.

use device::{AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Op, SumTree, Tensor};

use super::keys_values::{KeysValues, of_queries};
use super::slices::{self, TokenRun};
use crate::context::Context;
use crate::dropout::{self, DropoutSum};

/// Rows of keys, each followed by its values: `[rows, 2 K d]`.
#[derive(Clone, Copy)]
struct KeyValueRows(Tensor);

impl KeyValueRows {
    fn of_rows(context: &Context, shape: &AttentionShape, rows: usize) -> KeyValueRows {
        KeyValueRows(context.activation(context.scratch, rows, 2 * shape.kv_heads * shape.head_dim))
    }

    fn rows_of(self, first: usize, count: usize) -> KeysValues {
        let (rows, half) = (self.0.rows_of(first..first + count), self.0.cols / 2);
        KeysValues { k: rows.cols_of(0..half), v: rows.cols_of(half..2 * half) }
    }
}

/// Rows of this rank among the slices of all.
fn own(context: &Context, parts: KeyValueRows) -> KeysValues {
    let tokens = context.shape.tokens();
    parts.rows_of(context.cp.position() * tokens, tokens)
}

/// Keys and values of all tokens, in scratch.
fn gather(context: &Context, shape: &AttentionShape, from: KeysValues) -> Result<KeyValueRows, DeviceError> {
    let rows = context.shape.slices.ranks * context.shape.tokens();
    let all = KeyValueRows::of_rows(context, shape, rows);
    context.scratch.scoped(|| {
        let parts = KeyValueRows::of_rows(context, shape, rows);
        let to = own(context, parts);
        context.submit(Op::Copy { from: from.k, to: to.k })?;
        context.submit(Op::Copy { from: from.v, to: to.v })?;
        context.cp.all_gather(context.stream, parts.0)?;
        slices::in_order(context, parts.0, all.0)
    })?;
    Ok(all)
}

/// The operands of `run`: its rows of `whole`, on the keys that they may see.
fn of_run(context: &Context, whole: &AttentionOperands, all: KeyValueRows, run: &TokenRun) -> AttentionOperands {
    let length = context.shape.sequence_length;
    let seen = context.shape.slices.keys_seen_by(length, &run.places);
    of_queries(context, whole, run, all.rows_of(run.sequence * length, seen))
}

/// The forward pass of `whole`, whose keys and values are this rank's.
///
/// # Errors
/// The device's and the communicator's.
pub(super) fn forward(context: &Context, whole: &AttentionOperands) -> Result<(), DeviceError> {
    context.scratch.scoped(|| {
        let all = gather(context, &whole.shape, KeysValues { k: whole.k, v: whole.v })?;
        context
            .shape
            .runs(context.cp.position())
            .try_for_each(|run| context.submit(Op::Attention { operands: of_run(context, whole, all, &run) }))
    })
}

/// Gradients `dq[T, H d]` and `to[T, K d]` of queries, keys and values of `whole`, assigned from `dout[T, H d]`.
///
/// # Errors
/// The device's and the communicator's.
pub(super) fn backward(
    context: &Context,
    whole: &AttentionOperands,
    [dout, dq]: [Tensor; 2],
    to: KeysValues,
) -> Result<(), DeviceError> {
    let shape = &whole.shape;
    let (length, rows) = (context.shape.sequence_length, context.shape.slices.ranks * context.shape.tokens());
    context.scratch.scoped(|| {
        let sums = KeyValueRows::of_rows(context, shape, rows);
        context.scratch.scoped(|| {
            let all = gather(context, shape, KeysValues { k: whole.k, v: whole.v })?;
            // Room for the most that any rank needs, so that all ranks need equally much.
            let more = KeyValueRows::of_rows(context, shape, keys_of_first_chunks(context));
            let key_sums = context.scratch.floats(2 * length * shape.kv_heads, shape.head_dim);
            let mut before: Option<TokenRun> = None;
            // The last chunk of a sequence sees most keys: it assigns, the one before it adds.
            let runs: Vec<TokenRun> = context.shape.runs(context.cp.position()).collect();
            for run in runs.into_iter().rev() {
                let operands = of_run(context, whole, all, &run);
                let (first, seen) = (run.sequence * length, operands.k.rows);
                let is_first = before.is_none_or(|before| before.sequence != run.sequence);
                let KeysValues { k: dk, v: dv } =
                    if is_first { sums.rows_of(first, seen) } else { more.rows_of(0, seen) };
                let of_run = |tensor: Tensor| tensor.rows_of(run.rows.clone());
                let gradients = AttentionGradients { dout: of_run(dout), dq: of_run(dq), dk, dv, key_sums };
                context.submit(Op::AttentionBackward { operands, gradients })?;
                if is_first {
                    let unseen = sums.0.rows_of(first + seen..first + length);
                    if !unseen.is_empty() {
                        context.submit(Op::Fill { out: unseen, value: 0.0 })?;
                    }
                } else {
                    let (x, out) = (more.0.rows_of(0..seen), sums.0.rows_of(first..first + seen));
                    // Terms are stored as activations are, and so is their sum.
                    let sum = DropoutSum { x, bias: None, residual: Some(out), residual_scale: 1.0, out };
                    dropout::add(context, sum, None)?;
                }
                before = Some(run);
            }
            Ok(())
        })?;
        scatter(context, shape, sums, to)
    })
}

/// The most keys that a chunk sees which is not the last of its sequence on its rank.
fn keys_of_first_chunks(context: &Context) -> usize {
    let (slices, length) = (context.shape.slices, context.shape.sequence_length);
    let last_of_first = slices.chunks(length, slices.ranks - 1).rev().nth(1);
    last_of_first.map_or(0, |chunk| slices.keys_seen_by(length, &chunk))
}

/// This rank's rows of the sum over the group of `terms[B S, 2 K d]`, in rank order.
fn scatter(context: &Context, shape: &AttentionShape, terms: KeyValueRows, to: KeysValues) -> Result<(), DeviceError> {
    let parts = KeyValueRows::of_rows(context, shape, terms.0.rows);
    slices::by_rank(context, terms.0, parts.0)?;
    context.cp.reduce_scatter(context.stream, parts.0, SumTree::RANK_ORDER)?;
    let from = own(context, parts);
    context.submit(Op::Copy { from: from.k, to: to.k })?;
    context.submit(Op::Copy { from: from.v, to: to.v })
}
