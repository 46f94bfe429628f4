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
use crate::expert_biases::ExpertBiases;
use crate::expert_parallel::exchange::{Exchange, Received};
use crate::expert_products::{RowTerms, add_products, product};
use crate::expert_rounds::Sizes;
use crate::experts_tensors::{ExpertsPending, Routed};

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
            self.context.submit(ExpertOp::GroupRows { choice, first_expert: sizes.first_expert, rows }.into())
        })
    }

    /// The weighted sum of the experts' outputs, assigned or added to `sum[T, D]`, from `x[T, D]`.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn forward(
        &self,
        params: &ExpertsParams,
        x: Tensor,
        (sum, write): (Tensor, Write),
    ) -> Result<(), DeviceError> {
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
                self.combine((y, Some(weights)), sent, (out, write))
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
            let write = self.biases(rows).begin(params.down_bias, x)?;
            product(context, Orientation::Nt, (y, params.down), (x, write), rows)
        })
    }

    /// The activation's input, in scratch, of rows `x[C, D]`.
    fn hidden(&self, params: &ExpertsParams, rows: ExpertRows, x: Tensor) -> Result<Tensor, DeviceError> {
        let context = self.context;
        let width = params.down.cols * context.model.activation.inputs_per_output();
        let hidden = context.activation(context.scratch, x.rows, width);
        let write = self.biases(rows).begin(params.up_bias, hidden)?;
        product(context, Orientation::Nt, (x, params.up), (hidden, write), rows)?;
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
                self.combine((returned, None), sent, (sizes.tokens_in(round, sum), Write::Assign))
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
            product(context, Orientation::Nn, (dy, params.down), (gradient, Write::Assign), rows)?;
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
            self.biases(rows).add_to_weights(params.down_bias, dy, dweights)?;
            product(context, Orientation::Nn, (left.hidden, params.up), (x, Write::Assign), rows)
        })
    }

    /// Accumulators of a weight and its bias = or += their gradients of each expert: one term for each sequence of each
    /// rank, from `values[T, D]`, which are sent, and the factor that the rows have.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn backward_weight(
        &self,
        (weight, bias): (Tensor, Option<Tensor>),
        values: Tensor,
        factor: Factor,
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, sizes) = (self.context, self.sizes());
        let mut write = write;
        for round in 0..sizes.rounds {
            context.scratch.scoped(|| {
                let (received, sent) = (self.received(round)?, sizes.sent_in(round, self.routed.rows));
                let values = self.exchange.dispatch(sizes.tokens_in(round, values), (sent, received))?;
                let weights = match (factor, bias) {
                    (Factor::Activated(_), Some(_)) => {
                        Some(self.exchange.gathered(sizes.tokens_in(round, self.routed.weights))?)
                    }
                    (Factor::Activated(_), None) | (Factor::Hidden(_), _) => None,
                };
                for from in 0..sizes.ranks {
                    let (values, rows) = (sizes.rows_from(from, values), received.of(from));
                    let terms = (RowTerms::One(rows), write);
                    match factor {
                        Factor::Activated(activated) => {
                            let activated = sizes.rows_in(round, from, activated);
                            add_products(context, weight, (values, activated), terms)?;
                            if let Some(weights) = weights {
                                let weighted = (values, sizes.tokens_in(from, weights));
                                self.biases(rows).add_weighted_gradient(bias, weighted, write)?;
                            }
                        }
                        Factor::Hidden(hidden) => {
                            let hidden = sizes.rows_in(round, from, hidden);
                            add_products(context, weight, (hidden, values), terms)?;
                            self.biases(rows).add_gradient(bias, hidden, write)?;
                        }
                    }
                    write = Write::Accumulate;
                }
                Ok::<(), DeviceError>(())
            })?;
        }
        Ok(())
    }

    fn biases(&self, rows: ExpertRows) -> ExpertBiases<'_> {
        ExpertBiases::new(self.context, RowTerms::One(rows), self.sizes().position * self.sizes().experts)
    }

    /// The rows that this rank is sent in a round.
    fn received(&self, round: usize) -> Result<Received, DeviceError> {
        self.exchange.received(self.sizes().tokens_in(round, self.choices))
    }

    /// `out[S, D]` = or += the sum of each token's rows of `y[n C, D]`, in ascending order of experts.
    fn combine(
        &self,
        (y, weights): (Tensor, Option<Tensor>),
        rows: ExpertRows,
        (out, write): (Tensor, Write),
    ) -> Result<(), DeviceError> {
        self.context.submit(ExpertOp::CombineRows { y, weights, rows, out, write }.into())
    }

    fn sizes(&self) -> Sizes {
        self.exchange.sizes
    }
}
