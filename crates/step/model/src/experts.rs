//! Experts in place of the feed-forward block: a router, a dense block for each expert, and an expert of all tokens.
//!
//! Tensor parallelism divides experts, whole ones: each rank has all rows, routes all of them, and computes those of
//! its own experts. A token's sum over its experts is in ascending order of experts; over ranks it is a pending sum, as
//! that of a dense block. How many rows an expert has is data; tensors have the most rows that a rank can be given.
//!
//! Where several ranks divide experts, their rows travel: [`crate::expert_parallel`].
//!
//! Rows are sorted by expert in scratch before each product. Neither the outputs of experts nor those of the activation
//! are kept: the gradient of a weight is the product of the activation's output with the gradient that arrives there,
//! and the backward pass of the input writes the former again, times the weight.

use config::ExpertsSpec;
use device::{DeviceError, ExpertOp, ExpertRows, Op, Orientation, Tensor, Write};

use crate::binding::ExpertsParams;
use crate::context::Context;
use crate::expert_biases::ExpertBiases;
use crate::expert_parallel::{Factor, SpreadExperts};
use crate::expert_products::{RowTerms, add_products, product};
use crate::experts_spec::spec;
use crate::experts_tensors::{ExpertsKept, ExpertsPending, ExpertsSaved, Routed, row_tensor};
use crate::placement::{Partial, Residual, Whole, enter, leave};
use crate::router::Router;
use crate::router_balance::RouterBalance;
use crate::shared_expert::SharedExpert;

/// The block of one layer and microbatch.
#[derive(Clone, Copy)]
pub(crate) struct Experts<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) balance: RouterBalance<'a>,
}

/// The output of the activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsActivated {
    /// `[R, F]`; where several ranks divide experts, the block's input `[T, D]`, whose rows are sent to them.
    routed: Tensor,
    /// `[T, F]` of the shared expert.
    shared: Option<Tensor>,
}

impl Experts<'_> {
    /// As that of [`crate::feed_forward::FeedForward`], from the rows of all ranks.
    pub(crate) fn fill(
        &self,
        params: &ExpertsParams,
        normed: Whole,
        saved: &ExpertsSaved,
        activated: Option<ExpertsActivated>,
    ) -> Result<(), DeviceError> {
        let (context, router, rows) = (self.context, self.router(), saved.routed.rows);
        router.choose((params.router, params.router_bias), normed, saved.routed, self.balance.correction())?;
        match saved.kept {
            ExpertsKept::Hidden(hidden) => {
                context.scratch.scoped(|| {
                    let computed = self.balance.within_capacity(saved.routed)?;
                    router.group(computed, rows, router.own.start)
                })?;
                context.scratch.scoped(|| {
                    let x = self.gathered(normed.tensor(), rows)?;
                    let write = self.biases(rows).begin(params.up_bias, hidden)?;
                    product(context, Orientation::Nt, (x, params.up), (hidden, write), rows)
                })?;
                if let Some(activated) = activated {
                    self.activate_at((saved, hidden), activated.routed)?;
                }
            }
            ExpertsKept::Choices(choices) => {
                self.balance.keep_within_capacity(saved.routed, choices)?;
                self.spread(saved.routed, choices).group()?;
                if let Some(activated) = activated {
                    context.submit(Op::Copy { from: normed.tensor(), to: activated.routed })?;
                }
            }
        }
        let Some((shared, saved)) = self.shared(params).zip(saved.shared) else { return Ok(()) };
        shared.fill(normed, saved, activated.and_then(|activated| activated.shared))
    }

    pub(crate) fn lay_out_activated(&self, params: &ExpertsParams) -> ExpertsActivated {
        let (context, scratch) = (self.context, self.context.scratch);
        ExpertsActivated {
            routed: match context.ep {
                None => params.activated(context, scratch),
                Some(_) => context.activation(scratch, context.shape.tokens(), context.model.hidden),
            },
            shared: params.shared.map(|shared| shared.dense.lay_out_activated(self.context, scratch)),
        }
    }

    /// The activation's output, in scratch, from its input.
    pub(crate) fn activate(
        &self,
        params: &ExpertsParams,
        saved: &ExpertsSaved,
    ) -> Result<ExpertsActivated, DeviceError> {
        let routed = params.activated(self.context, self.context.scratch);
        match saved.kept {
            ExpertsKept::Hidden(hidden) => self.activate_at((saved, hidden), routed)?,
            ExpertsKept::Choices(_) => {
                panic!("what experts of other ranks read is laid out before the block is filled")
            }
        }
        let shared = params.shared.zip(saved.shared);
        let shared = shared.map(|(params, saved)| params.dense.activate(self.context, saved.dense)).transpose()?;
        Ok(ExpertsActivated { routed, shared })
    }

    fn activate_at(&self, (saved, x): (&ExpertsSaved, Tensor), y: Tensor) -> Result<(), DeviceError> {
        let (activation, rows) = (self.context.model.activation, saved.routed.rows);
        self.context.submit(ExpertOp::Activation { activation, x, y, rows }.into())
    }

    /// The weighted sum of the experts' outputs, assigned or added to `sum[T, D]+tp`, then that of the shared expert.
    pub(crate) fn project(
        &self,
        params: &ExpertsParams,
        (saved, activated): (&ExpertsSaved, ExpertsActivated),
        sum: Tensor,
        write: Write,
    ) -> Result<Partial, DeviceError> {
        let (context, routed) = (self.context, saved.routed);
        match saved.kept {
            ExpertsKept::Hidden(_) => context.scratch.scoped(|| {
                let (y, weights, rows) = (row_tensor(context), Some(routed.weights), routed.rows);
                let write_rows = self.biases(rows).begin(params.down_bias, y)?;
                product(context, Orientation::Nt, (activated.routed, params.down), (y, write_rows), rows)?;
                context.submit(ExpertOp::CombineRows { y, weights, rows, out: sum, write }.into())
            })?,
            ExpertsKept::Choices(choices) => {
                self.spread(routed, choices).forward(params, activated.routed, (sum, write))?;
            }
        }
        if let (Some(shared), Some(saved), Some(activated)) = (self.shared(params), saved.shared, activated.shared) {
            shared.project(saved, activated, sum)?;
        }
        Ok(Partial::new(sum))
    }

    /// Gradient of the normed residual, at `input[R, D]`, from that of the block's output; `normed` is its input.
    pub(crate) fn backward_input(
        &self,
        params: &ExpertsParams,
        saved: &ExpertsSaved,
        (normed, dy): (Residual, Residual),
        (pending, input): (&ExpertsPending, Tensor),
    ) -> Result<Residual, DeviceError> {
        let (context, rows) = (self.context, saved.routed.rows);
        let shared = self.shared(params).zip(saved.shared).zip(pending.shared);
        let through_shared = |dy| match &shared {
            Some(((shared, saved), pending)) => shared.backward_activated(*saved, dy, *pending),
            None => Ok(()),
        };
        context.scratch.scoped(|| {
            let sum = match saved.kept {
                ExpertsKept::Hidden(hidden) => {
                    context.scratch.scoped(|| {
                        let dy = enter(context, dy)?;
                        self.backward_activated(params, (saved.routed, hidden), dy.tensor(), pending)?;
                        through_shared(dy)
                    })?;
                    let sum = Partial::target(context, input);
                    context.scratch.scoped(|| {
                        let y = row_tensor(context);
                        product(context, Orientation::Nn, (pending.hidden, params.up), (y, Write::Assign), rows)?;
                        let combine = ExpertOp::CombineRows { y, weights: None, rows, out: sum, write: Write::Assign };
                        context.submit(combine.into())
                    })?;
                    sum
                }
                // Other ranks send the gradients of this rank's tokens back at once.
                ExpertsKept::Choices(choices) => {
                    let sum = Partial::target(context, input);
                    context.scratch.scoped(|| {
                        let (dy, normed) = (enter(context, dy)?, enter(context, normed)?);
                        let spread = self.spread(saved.routed, choices);
                        self.backward_routed(saved.routed, pending, |dweights| {
                            spread.backward_input(params, [normed, dy].map(Whole::tensor), (pending, sum), dweights)
                        })?;
                        through_shared(dy)
                    })?;
                    sum
                }
            };
            if let Some(((shared, _), pending)) = &shared {
                shared.backward_input(*pending, sum)?;
            }
            self.router().backward_input(params.router, pending.logits, sum)?;
            leave(context, Partial::new(sum))?.kept_at(context, input)
        })
    }

    /// Gradients of the activation's input and of the router's logits, from that of the block's output `dy[T, D]`.
    fn backward_activated(
        &self,
        params: &ExpertsParams,
        (routed, hidden): (Routed, Tensor),
        dy: Tensor,
        pending: &ExpertsPending,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        self.backward_routed(routed, pending, |dweights| {
            context.scratch.scoped(|| {
                let (dy, gradient) = (self.gathered(dy, routed.rows)?, params.activated(context, context.scratch));
                product(context, Orientation::Nn, (dy, params.down), (gradient, Write::Assign), routed.rows)?;
                context.submit(
                    ExpertOp::ActivationBackward {
                        activation: context.model.activation,
                        x: hidden,
                        dy: gradient,
                        weights: routed.weights,
                        dx: pending.hidden,
                        y: pending.activated,
                        dweights,
                        rows: routed.rows,
                    }
                    .into(),
                )?;
                self.biases(routed.rows).add_to_weights(params.down_bias, dy, dweights)
            })
        })
    }

    /// Gradient of the router's logits, from that of the weights, which `experts` assigns to `dweights[T, k]`.
    fn backward_routed(
        &self,
        routed: Routed,
        pending: &ExpertsPending,
        experts: impl FnOnce(Tensor) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let scratch = self.context.scratch;
        scratch.scoped(|| {
            let dweights = scratch.floats(routed.weights.rows, routed.weights.cols);
            experts(dweights)?;
            self.router().backward(routed, dweights, pending.logits)?;
            self.balance.backward(routed, pending.logits)
        })
    }

    /// With `gradients` as accumulators: = or += the gradients of all parameters; `normed` is the block's input, `dy`
    /// the gradient of its output.
    pub(crate) fn backward_weight(
        &self,
        gradients: &ExpertsParams,
        (saved, pending): (&ExpertsSaved, &ExpertsPending),
        (normed, dy): (Residual, Residual),
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, rows) = (self.context, saved.routed.rows);
        if !context.trains_all() {
            return Ok(());
        }
        let shared = self.shared(gradients).zip(pending.shared);
        let spread = match saved.kept {
            ExpertsKept::Hidden(_) => None,
            ExpertsKept::Choices(choices) => Some(self.spread(saved.routed, choices)),
        };
        context.scratch.scoped(|| {
            let dy = enter(context, dy)?;
            context.scratch.scoped(|| {
                if let Some(spread) = &spread {
                    let (accumulators, factor) =
                        ((gradients.down, gradients.down_bias), Factor::Activated(pending.activated));
                    return spread.backward_weight(accumulators, dy.tensor(), factor, write);
                }
                let dy = self.gathered(dy.tensor(), rows)?;
                add_products(context, gradients.down, (dy, pending.activated), (RowTerms::Sequences(rows), write))?;
                self.biases(rows).add_weighted_gradient(gradients.down_bias, (dy, saved.routed.weights), write)
            })?;
            shared.as_ref().map_or(Ok(()), |(shared, pending)| shared.backward_down(*pending, dy, write))
        })?;
        context.scratch.scoped(|| {
            let normed = enter(context, normed)?;
            context.scratch.scoped(|| {
                if let Some(spread) = &spread {
                    let (accumulators, factor) = ((gradients.up, gradients.up_bias), Factor::Hidden(pending.hidden));
                    return spread.backward_weight(accumulators, normed.tensor(), factor, write);
                }
                self.biases(rows).add_gradient(gradients.up_bias, pending.hidden, write)?;
                let x = self.gathered(normed.tensor(), rows)?;
                add_products(context, gradients.up, (pending.hidden, x), (RowTerms::Sequences(rows), write))
            })?;
            self.router().backward_weight(gradients.router, (normed, pending.logits), write)?;
            self.router().backward_bias(gradients.router_bias, pending.logits, write)?;
            shared.as_ref().map_or(Ok(()), |(shared, pending)| shared.backward_up(*pending, normed, write))
        })
    }

    /// The rows of this rank's experts, in scratch, from those of tokens `from[T, D]`.
    fn gathered(&self, from: Tensor, rows: ExpertRows) -> Result<Tensor, DeviceError> {
        let to = row_tensor(self.context);
        self.context.submit(ExpertOp::GatherRows { from, rows, to }.into())?;
        Ok(to)
    }

    fn biases(&self, rows: ExpertRows) -> ExpertBiases<'_> {
        ExpertBiases::new(self.context, RowTerms::Sequences(rows), 0)
    }

    /// The experts of all ranks that divide them.
    ///
    /// # Panics
    /// A context without such ranks: saved tensors are laid out for the same context.
    fn spread(&self, routed: Routed, choices: Tensor) -> SpreadExperts<'_> {
        match SpreadExperts::new(self.context, routed, choices) {
            Some(spread) => spread,
            None => panic!("tensors of several ranks of experts are laid out for a context that has these"),
        }
    }

    fn router(&self) -> Router<'_> {
        let ExpertsSpec { number, routing, .. } = *spec(self.context);
        let (own, position) = (number / self.context.tp.size(), self.context.tp.position());
        Router { context: self.context, routing, own: position * own..(position + 1) * own }
    }

    fn shared(&self, params: &ExpertsParams) -> Option<SharedExpert<'_>> {
        params.shared.map(|params| SharedExpert { context: self.context, params })
    }
}
