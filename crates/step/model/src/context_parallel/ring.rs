//! Attention of a rank's queries on blocks of keys and values that are passed around the ranks (Liu et al. 2023, arXiv
//! 2310.01889).
//!
//! A rank has its own block and then those of the ranks before it, one after the other: two at any time, so memory is
//! that of its own tokens, whatever the length of a sequence. Outputs on the chunks of each block are joined in this
//! order by their log-sum-exps, in single precision. In the backward pass blocks take the same way; the sums of their
//! gradients travel one step after them, in single precision, and come home after the last rank has added its terms.
//!
//! Blocks travel on a stream of their own while attention on the present one is computed: a shift begins when nothing
//! reads the place of the next block any more, and the next attention waits for its end. Sums of gradients travel while
//! the next block's terms are computed, which are added when they have arrived, in the order in which they were made.
//! The last use of that stream is awaited before a pass ends, so to the program that contains it a pass is work of one
//! stream. `crates/testing/surveys/tests/ring_order.rs` compares all places that the two streams touch.

use config::ChunkOrder;
use device::{
    AttentionGradients, AttentionOperands, DeviceError, Dtype, Op, Places, Stream, StreamEvent, Tensor, Write,
};

use super::keys_values::{KeysValues, of_queries};
use super::slices::TokenRun;
use crate::context::Context;

/// Keys `| ` values, or their gradients, of the tokens of one rank: `[T, 2 K d]`.
fn halves(block: Tensor) -> KeysValues {
    KeysValues { k: block.cols_of(0..block.cols / 2), v: block.cols_of(block.cols / 2..block.cols) }
}

/// A block, and the place of the next one.
struct Passing {
    here: Tensor,
    next: Tensor,
    /// When the next one is there.
    arrival: Option<StreamEvent>,
}

impl Passing {
    fn new(context: &Context, cols: usize, dtype: Dtype) -> Passing {
        let [here, next] = [(); 2].map(|()| context.scratch.tensor(context.shape.tokens(), cols, dtype));
        Passing { here, next, arrival: None }
    }

    /// This rank's keys and values.
    fn of_own(context: &Context, whole: &AttentionOperands) -> Result<Passing, DeviceError> {
        let passing = Passing::new(context, 2 * whole.k.cols, context.stored);
        let KeysValues { k, v } = halves(passing.here);
        context.submit(Op::Copy { from: whole.k, to: k })?;
        context.submit(Op::Copy { from: whole.v, to: v })?;
        Ok(passing)
    }

    /// Begins to give the block to the next rank and to take that of the previous one, after everything submitted so
    /// far: that has written the block, and has read the one in whose place the next one comes.
    fn start(&mut self, context: &Context) -> Result<(), DeviceError> {
        context.device.wait(Stream::Shift, context.device.record(context.stream))?;
        context.cp.shift(Stream::Shift, self.here, self.next)?;
        self.arrival = Some(context.device.record(Stream::Shift));
        Ok(())
    }

    /// Has the next block for everything submitted from here on, where one is under way.
    fn finish(&mut self, context: &Context) -> Result<(), DeviceError> {
        let Some(arrival) = self.arrival.take() else { return Ok(()) };
        context.device.wait(context.stream, arrival)?;
        std::mem::swap(&mut self.here, &mut self.next);
        Ok(())
    }
}

/// Own queries and chunks of a block that they may see.
struct Meeting {
    queries: TokenRun,
    keys: TokenRun,
    /// Whether these queries have met no keys before.
    is_first: bool,
}

/// The rank whose block this rank has after `step` steps.
fn owner(context: &Context, step: usize) -> usize {
    let ranks = context.shape.slices.ranks;
    (context.cp.position() + ranks - step) % ranks
}

/// The meetings of this rank's chunks and those of the block that it has after `step` steps, in order.
fn meetings(context: &Context, step: usize) -> Vec<Meeting> {
    let shape = context.shape;
    let may_see = |queries: &TokenRun, keys: &TokenRun| match shape.slices.order {
        // A token sees none that comes after it.
        ChunkOrder::Balanced => keys.places.start < queries.places.end,
        ChunkOrder::Contiguous => true,
    };
    let of_queries = |queries: TokenRun| {
        let keys = shape.runs(owner(context, step)).filter(|keys| keys.sequence == queries.sequence);
        let keys: Vec<TokenRun> = keys.filter(|keys| may_see(&queries, keys)).collect();
        let meeting =
            move |(index, keys)| Meeting { queries: queries.clone(), keys, is_first: step == 0 && index == 0 };
        keys.into_iter().enumerate().map(meeting).collect::<Vec<_>>()
    };
    shape.runs(context.cp.position()).flat_map(of_queries).collect()
}

/// Tokens of a chunk.
fn chunk(context: &Context) -> usize {
    context.shape.sequence_length / context.shape.slices.num_chunks()
}

/// The operands of `meeting`, whose keys are in `block`.
fn of_meeting(context: &Context, whole: &AttentionOperands, block: Tensor, meeting: &Meeting) -> AttentionOperands {
    let keys = halves(block.rows_of(meeting.keys.rows.clone()));
    let places = Places { first_query: meeting.queries.places.start, first_key: meeting.keys.places.start };
    AttentionOperands { places: Some(places), ..of_queries(context, whole, &meeting.queries, keys) }
}

/// The forward pass of `whole`, whose keys and values are this rank's.
///
/// # Errors
/// The device's and the communicator's.
pub(super) fn forward(context: &Context, whole: &AttentionOperands) -> Result<(), DeviceError> {
    context.scratch.scoped(|| {
        let (head_dim, steps) = (whole.shape.head_dim, context.shape.slices.ranks);
        let mut blocks = Passing::of_own(context, whole)?;
        let sums = context.scratch.floats(whole.out.rows, whole.out.cols);
        let part = context.activation(context.scratch, chunk(context), whole.out.cols);
        let part_log_sum_exp = context.scratch.floats(chunk(context), whole.shape.heads);
        for step in 0..steps {
            if step + 1 < steps {
                blocks.start(context)?;
            }
            for meeting in meetings(context, step) {
                let operands = of_meeting(context, whole, blocks.here, &meeting);
                let (out, log_sum_exp) = (sums.rows_of(meeting.queries.rows.clone()), operands.log_sum_exp);
                let of_part = AttentionOperands { out: part, log_sum_exp: part_log_sum_exp, ..operands };
                context.submit(Op::Attention { operands: of_part })?;
                let write = if meeting.is_first { Write::Assign } else { Write::Accumulate };
                context.submit(Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write })?;
            }
            blocks.finish(context)?;
        }
        context.submit(Op::Copy { from: sums, to: whole.out })
    })
}

/// `sums` += the `terms`, as they are stored.
fn add(context: &Context, terms: Tensor, sums: Tensor) -> Result<(), DeviceError> {
    match terms.dtype {
        Dtype::F32 => context.submit(Op::Accumulate { x: terms, into: sums }),
        Dtype::Bf16 | Dtype::F16 | Dtype::I32 | Dtype::I64 => context.scratch.scoped(|| {
            let wide = context.scratch.floats(terms.rows, terms.cols);
            context.submit(Op::Copy { from: terms, to: wide })?;
            context.submit(Op::Accumulate { x: wide, into: sums })
        }),
    }
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
    let (shape, steps, rows) = (&whole.shape, context.shape.slices.ranks, chunk(context));
    context.scratch.scoped(|| {
        let mut blocks = Passing::of_own(context, whole)?;
        let mut sums = Passing::new(context, blocks.here.cols, Dtype::F32);
        let query_sums = context.scratch.floats(dq.rows, dq.cols);
        let query_terms = context.activation(context.scratch, rows, dq.cols);
        // The terms of all meetings of a step but the first.
        let terms = context.activation(context.scratch, context.shape.tokens(), blocks.here.cols);
        let key_sums = context.scratch.floats(2 * rows * shape.kv_heads, shape.head_dim);
        for out in [query_sums, sums.here] {
            context.submit(Op::Fill { out, value: 0.0 })?;
        }
        for step in 0..steps {
            if step + 1 < steps {
                blocks.start(context)?;
            }
            let meetings = meetings(context, step);
            for (index, meeting) in meetings.iter().enumerate() {
                let terms = terms_of(terms, rows, step, index);
                let operands = of_meeting(context, whole, blocks.here, meeting);
                let (queries, KeysValues { k: dk, v: dv }) = (meeting.queries.rows.clone(), halves(terms));
                let dout = dout.rows_of(queries.clone());
                let gradients = AttentionGradients { dout, dq: query_terms, dk, dv, key_sums };
                context.submit(Op::AttentionBackward { operands, gradients })?;
                add(context, query_terms, query_sums.rows_of(queries))?;
                if step == 0 {
                    add(context, terms, sums.here.rows_of(meeting.keys.rows.clone()))?;
                }
            }
            sums.finish(context)?;
            for (index, meeting) in meetings.iter().enumerate().filter(|_| step > 0) {
                add(context, terms_of(terms, rows, step, index), sums.here.rows_of(meeting.keys.rows.clone()))?;
            }
            sums.start(context)?;
            blocks.finish(context)?;
        }
        context.submit(Op::Copy { from: query_sums, to: dq })?;
        // Home.
        sums.finish(context)?;
        let KeysValues { k, v } = halves(sums.here);
        context.submit(Op::Copy { from: k, to: to.k })?;
        context.submit(Op::Copy { from: v, to: to.v })
    })
}

/// Where the terms of a meeting wait until the sums that they are added to have arrived. Those of a rank's own block
/// are added at once.
fn terms_of(terms: Tensor, rows: usize, step: usize, index: usize) -> Tensor {
    let first = if step == 0 { 0 } else { index * rows };
    terms.rows_of(first..first + rows)
}
