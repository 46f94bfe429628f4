//! Rows on their way between the ranks that divide experts.

use device::{Communicator, DeviceError, Dtype, ExchangedRows, ExpertOp, ExpertRows, Op, SumTree, Tensor};

use crate::context::Context;
use crate::expert_rounds::Sizes;

/// The exchange of one layer and microbatch.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) group: &'a dyn Communicator,
    pub(crate) sizes: Sizes,
}

/// The rows of this rank's experts in one round: `C` of each rank, sorted by expert, then by token.
#[derive(Clone, Copy)]
pub(crate) struct Received {
    sizes: Sizes,
    rows: ExpertRows,
}

impl Received {
    /// The rows of the tokens of rank `from`.
    pub(crate) fn of(self, from: usize) -> ExpertRows {
        let Received { sizes, rows } = self;
        let of_rank = |x: Tensor| x.rows_of(from..from + 1);
        let places = sizes.tokens_in(from, rows.places);
        ExpertRows { places, slots: of_rank(rows.slots), offsets: of_rank(rows.offsets), expected: rows.expected }
    }
}

impl Exchange<'_> {
    /// A value of the tokens `[S, _]` of each rank, `[n S, _]` in scratch.
    pub(crate) fn gathered(&self, own: Tensor) -> Result<Tensor, DeviceError> {
        let Exchange { context, group, sizes } = *self;
        let all = context.scratch.tensor(sizes.ranks * sizes.tokens, own.cols, own.dtype);
        context.submit(Op::Copy { from: own, to: sizes.tokens_in(sizes.position, all) })?;
        group.all_gather(context.stream, all)?;
        Ok(all)
    }

    /// The rows of this rank's experts, in scratch, from the choices `[S, k]` of each rank's tokens. Sender and
    /// receiver derive the same numbers of rows from the same choices.
    pub(crate) fn received(&self, choices: Tensor) -> Result<Received, DeviceError> {
        let Exchange { context, sizes, .. } = *self;
        let (scratch, choices) = (context.scratch, self.gathered(choices)?);
        let Sizes { ranks, first_expert, experts, per_token, room, expected, .. } = sizes;
        let rows = ExpertRows {
            places: scratch.tensor(choices.rows, per_token, Dtype::I32),
            slots: scratch.tensor(ranks, room, Dtype::I32),
            offsets: scratch.tensor(ranks, experts + 1, Dtype::I32),
            expected,
        };
        let received = Received { sizes, rows };
        for from in 0..ranks {
            let (choice, rows) = (sizes.tokens_in(from, choices), received.of(from));
            let first_expert = first_expert + sizes.position * experts;
            context.submit(ExpertOp::GroupRows { choice, first_expert, rows }.into())?;
        }
        Ok(received)
    }

    /// A tensor `[n C, D]` of the rows of a round, in scratch.
    pub(crate) fn rows(&self) -> Tensor {
        self.context.activation(self.context.scratch, self.sizes.rows_of_round(), self.context.model.hidden)
    }

    /// Sends the rows `sent` of the tokens `x[S, D]` to the ranks of their experts; returns those that this rank is
    /// sent, in scratch.
    pub(crate) fn dispatch(&self, x: Tensor, (sent, received): (ExpertRows, Received)) -> Result<Tensor, DeviceError> {
        let (context, to) = (self.context, self.rows());
        context.scratch.scoped(|| {
            let from = self.rows();
            context.submit(ExpertOp::GatherRows { from: x, rows: sent, to: from }.into())?;
            self.exchange((from, sent), (to, received.rows))
        })?;
        Ok(to)
    }

    /// Sends the rows `y[n C, D]` back to the ranks of their tokens; returns those of this rank's tokens, in scratch.
    pub(crate) fn send_back(&self, y: Tensor, (sent, received): (ExpertRows, Received)) -> Result<Tensor, DeviceError> {
        let returned = self.rows();
        self.exchange((y, received.rows), (returned, sent))?;
        Ok(returned)
    }

    /// Exchanges the rows in use of `from` for those of `to`.
    fn exchange(
        &self,
        (from, given): (Tensor, ExpertRows),
        (to, gotten): (Tensor, ExpertRows),
    ) -> Result<(), DeviceError> {
        let Sizes { ranks, expected, .. } = self.sizes;
        let (given, gotten, expected) = (given.offsets, gotten.offsets, ranks * expected);
        self.group.exchange_rows(self.context.stream, from, to, ExchangedRows { given, gotten, expected })
    }

    /// Adds the gradients `[n S, k]` of weights, of which each rank has those of its own experts and zeros, into those
    /// `[S, k]` of this rank's tokens. One term of each sum is not zero, so the sum has its bits.
    pub(crate) fn return_weights(&self, dweights: Tensor, own: Tensor) -> Result<(), DeviceError> {
        let Exchange { context, group, sizes } = *self;
        group.reduce_scatter(context.stream, dweights, SumTree::RANK_ORDER)?;
        context.submit(Op::Copy { from: sizes.tokens_in(sizes.position, dweights), to: own })
    }
}
