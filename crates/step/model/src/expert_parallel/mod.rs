//! Experts that several ranks divide: rows go to the ranks of their experts, and their outputs come back.
//!
//! The ranks see other sequences. A round takes one sequence of each, so the rows of a sequence for an expert are never
//! cut: a weight's gradient has one term for each sequence, as on one rank. Sizes and number of rounds are functions of
//! the layout; how many rows are in use is data, which sender and receiver derive from the same choices. Every rank
//! takes part in every call, also without rows.
//!
//! An output is weighed and added where its token is, in ascending order of experts, so a token's sum has the bits of
//! one rank. Rows that were sent are not kept: the backward pass sends them again and repeats the first product.

mod exchange;

use device::{DeviceError, ExpertOp, ExpertRows, Orientation, Tensor, Write};

use crate::binding::ExpertsParams;
use crate::context::Context;
use crate::expert_parallel::exchange::{Exchange, Received};
use crate::expert_rounds::Sizes;
use crate::experts_tensors::{ExpertsPending, Routed};
use crate::gradient_sums::{Contributions, add_term};

/// The routed experts of one layer and microbatch.
#[derive(Clone, Copy)]
pub(crate) struct SpreadExperts<'a> {
    context: &'a Context<'a>,
    exchange: Exchange<'a>,
    routed: Routed,
    /// `[T, k]`: the choices that experts compute.
    choices: Tensor,
}

/// The values that the backward pass of the input left of each received row: one factor in the gradient of a weight.
/// The other is sent again.
#[derive(Clone, Copy)]
pub(crate) enum Factor {
    /// Outputs of the activation, times weights: of the last product, with the gradient of the block's output.
    Activated(Tensor),
    /// Gradients of the activation's input: of the first product, with the block's input.
    Hidden(Tensor),
}

impl<'a> SpreadExperts<'a> {
    /// Experts with this choice; `None` where no ranks divide them.
    pub(crate) fn new(context: &'a Context<'a>, routed: Routed, choices: Tensor) -> Option<SpreadExperts<'a>> {
        let (group, sizes) = (context.ep?, Sizes::of(context)?);
        Some(SpreadExperts { context, exchange: Exchange { context, group, sizes }, routed, choices })
    }

    /// Fills the rows that this rank sends.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn group(&self) -> Result<(), DeviceError> {
        let sizes = self.sizes();
        (0..sizes.rounds).try_for_each(|round| {
            let (choice, rows) = (sizes.tokens_in(round, self.choices), sizes.sent_in(round, self.routed.rows));
            self.context.submit(ExpertOp::GroupRows { choice, first_expert: 0, rows }.into())
        })
    }

    /// The weighted sum `sum[T, D]` of the experts' outputs, assigned, from `x[T, D]`.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn forward(&self, params: &ExpertsParams, x: Tensor, sum: Tensor) -> Result<(), DeviceError> {
        let sizes = self.sizes();
        (0..sizes.rounds).try_for_each(|round| {
            self.context.scratch.scoped(|| {
                let (received, sent) = (self.received(round)?, sizes.sent_in(round, self.routed.rows));
                let x = self.exchange.dispatch(sizes.tokens_in(round, x), (sent, received))?;
                for from in 0..sizes.ranks {
                    self.expert_outputs(params, received.of(from), sizes.rows_from(from, x))?;
                }
                let y = self.exchange.send_back(x, (sent, received))?;
                let (weights, out) = (sizes.tokens_in(round, self.routed.weights), sizes.tokens_in(round, sum));
                self.combine((y, Some(weights)), sent, out)
            })
        })
    }

    /// Replaces the inputs `x[C, D]` of one rank's rows by the experts' outputs.
    fn expert_outputs(&self, params: &ExpertsParams, rows: ExpertRows, x: Tensor) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let hidden = self.hidden(params, rows, x)?;
            let y = context.activation(context.scratch, x.rows, params.down.cols);
            let activation = context.model.activation;
            context.submit(ExpertOp::Activation { activation, x: hidden, y, rows }.into())?;
            self.product(Orientation::Nt, (y, params.down), (x, Write::Assign), rows)
        })
    }

    /// The activation's input, in scratch, of rows `x[C, D]`.
    fn hidden(&self, params: &ExpertsParams, rows: ExpertRows, x: Tensor) -> Result<Tensor, DeviceError> {
        let context = self.context;
        let width = params.down.cols * context.model.activation.inputs_per_output();
        let hidden = context.activation(context.scratch, x.rows, width);
        self.product(Orientation::Nt, (x, params.up), (hidden, Write::Assign), rows)?;
        Ok(hidden)
    }

    /// Gradient `sum[T, D]` of the block's input, assigned, and `dweights[T, k]`, from the input `x[T, D]` and the
    /// gradient `dy[T, D]` of the output; leaves the factors of weights' gradients in `pending`.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn backward_input(
        &self,
        params: &ExpertsParams,
        [x, dy]: [Tensor; 2],
        (pending, sum): (&ExpertsPending, Tensor),
        dweights: Tensor,
    ) -> Result<(), DeviceError> {
        let (context, sizes) = (self.context, self.sizes());
        (0..sizes.rounds).try_for_each(|round| {
            context.scratch.scoped(|| {
                let (received, sent) = (self.received(round)?, sizes.sent_in(round, self.routed.rows));
                let weights = self.exchange.gathered(sizes.tokens_in(round, self.routed.weights))?;
                let all_dweights = context.scratch.floats(weights.rows, weights.cols);
                let dispatched = |values| self.exchange.dispatch(sizes.tokens_in(round, values), (sent, received));
                let [x, dy] = [x, dy].map(dispatched);
                let (x, dy) = (x?, dy?);
                for from in 0..sizes.ranks {
                    let of_rank = |values| sizes.tokens_in(from, values);
                    let left = ExpertsPending {
                        activated: sizes.rows_in(round, from, pending.activated),
                        hidden: sizes.rows_in(round, from, pending.hidden),
                        ..*pending
                    };
                    let rows = [x, dy].map(|values| sizes.rows_from(from, values));
                    let weights = [weights, all_dweights].map(of_rank);
                    self.rows_backward(params, received.of(from), rows, (&left, weights))?;
                }
                self.exchange.return_weights(all_dweights, sizes.tokens_in(round, dweights))?;
                let returned = self.exchange.send_back(x, (sent, received))?;
                self.combine((returned, None), sent, sizes.tokens_in(round, sum))
            })
        })
    }

    /// Replaces the inputs `x[C, D]` of one rank's rows by their gradients.
    fn rows_backward(
        &self,
        params: &ExpertsParams,
        rows: ExpertRows,
        [x, dy]: [Tensor; 2],
        (left, [weights, dweights]): (&ExpertsPending, [Tensor; 2]),
    ) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let hidden = self.hidden(params, rows, x)?;
            let gradient = context.activation(context.scratch, x.rows, params.down.cols);
            self.product(Orientation::Nn, (dy, params.down), (gradient, Write::Assign), rows)?;
            context.submit(
                ExpertOp::ActivationBackward {
                    activation: context.model.activation,
                    x: hidden,
                    dy: gradient,
                    weights,
                    dx: left.hidden,
                    y: left.activated,
                    dweights,
                    rows,
                }
                .into(),
            )?;
            self.product(Orientation::Nn, (left.hidden, params.up), (x, Write::Assign), rows)
        })
    }

    /// `accumulator` = or += the gradient of a weight of each expert: one term for each sequence of each rank, from
    /// `values[T, D]`, which are sent, and the factor that the rows have.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn backward_weight(
        &self,
        accumulator: Tensor,
        values: Tensor,
        factor: Factor,
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, sizes) = (self.context, self.sizes());
        let contributions = Contributions::of_sequences(context);
        let mut write = write;
        for round in 0..sizes.rounds {
            context.scratch.scoped(|| {
                let (received, sent) = (self.received(round)?, sizes.sent_in(round, self.routed.rows));
                let values = self.exchange.dispatch(sizes.tokens_in(round, values), (sent, received))?;
                for from in 0..sizes.ranks {
                    let (values, rows) = (sizes.rows_from(from, values), received.of(from));
                    let (a, b) = match factor {
                        Factor::Activated(activated) => (values, sizes.rows_in(round, from, activated)),
                        Factor::Hidden(hidden) => (sizes.rows_in(round, from, hidden), values),
                    };
                    add_term(context, contributions, [accumulator], write, |[out], write| {
                        self.product(Orientation::Tn, (a, b), (out, write), rows)
                    })?;
                    write = Write::Accumulate;
                }
                Ok::<(), DeviceError>(())
            })?;
        }
        Ok(())
    }

    /// The rows that this rank is sent in a round.
    fn received(&self, round: usize) -> Result<Received, DeviceError> {
        self.exchange.received(self.sizes().tokens_in(round, self.choices))
    }

    /// `out[S, D]` assigned: the sum of each token's rows of `y[n C, D]`, in ascending order of experts.
    fn combine(
        &self,
        (y, weights): (Tensor, Option<Tensor>),
        rows: ExpertRows,
        out: Tensor,
    ) -> Result<(), DeviceError> {
        self.context.submit(ExpertOp::CombineRows { y, weights, rows, out, write: Write::Assign }.into())
    }

    fn product(
        &self,
        orientation: Orientation,
        (a, b): (Tensor, Tensor),
        (out, write): (Tensor, Write),
        rows: ExpertRows,
    ) -> Result<(), DeviceError> {
        self.context.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens: None, write }.into())
    }

    fn sizes(&self) -> Sizes {
        self.exchange.sizes
    }
}
