//! The feed-forward block. A dense one is, on the columns of this rank: up (and gate), activation, down.
//!
//! The block maps the normed residual to a pending sum without bias; the layer sums it and adds bias, dropout and the
//! residual stream. The activation's output is four times as wide as the residual and cheap, so it is not kept: the
//! backward pass of the input writes it again next to the gradient.

use device::{DeviceError, Frame, Op, Tensor, Write};

use crate::binding::{DenseParams, FeedForwardParams};
use crate::context::Context;
use crate::placement::{Partial, Residual, Sharded, enter, leave};
use crate::saved::SavedFrames;

/// Values that the backward passes of a feed-forward block read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeedForwardSaved {
    Dense {
        /// `[T, F]`, or gate | up `[T, 2F]`: input of the activation.
        hidden: Tensor,
    },
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeedForwardPending {
    Dense {
        /// `[T, F]`: the activation's output.
        activated: Tensor,
        /// Gradient of what [`FeedForwardSaved`] has.
        hidden: Tensor,
        /// `[R, D]`: gradient of the block's input.
        input: Tensor,
    },
}

/// Columns `F/tp` of this rank after the activation; `params` may be accumulators, too.
fn activated_width(params: &DenseParams) -> usize {
    params.down.weight.cols
}

/// Columns of this rank before the activation.
fn hidden_width(context: &Context, params: &DenseParams) -> usize {
    activated_width(params) * context.model.activation.inputs_per_output()
}

impl FeedForwardSaved {
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context, params: &FeedForwardParams) -> FeedForwardSaved {
        match params {
            FeedForwardParams::Dense(params) => FeedForwardSaved::Dense {
                hidden: context.activation(frames.until_input, context.shape.tokens(), hidden_width(context, params)),
            },
        }
    }
}

impl FeedForwardPending {
    pub(crate) fn lay_out(frame: &Frame, context: &Context, params: &FeedForwardParams) -> FeedForwardPending {
        let tokens = context.shape.tokens();
        match params {
            FeedForwardParams::Dense(params) => FeedForwardPending::Dense {
                activated: context.activation(frame, tokens, activated_width(params)),
                hidden: context.activation(frame, tokens, hidden_width(context, params)),
                input: context.residual(frame),
            },
        }
    }

    /// Gradient of the block's input.
    pub(crate) fn input(&self) -> Residual {
        match *self {
            FeedForwardPending::Dense { input, .. } => Residual::new(input),
        }
    }
}

/// The feed-forward block of one layer and microbatch.
#[derive(Clone, Copy)]
pub(crate) struct FeedForward<'a> {
    pub(crate) context: &'a Context<'a>,
}

impl FeedForward<'_> {
    /// Computes everything that the backward passes read from the normed residual. The activation's output is written
    /// to `activated[T, F]` at once where it has a place.
    pub(crate) fn fill(
        &self,
        params: &FeedForwardParams,
        normed: Residual,
        saved: &FeedForwardSaved,
        activated: Option<Tensor>,
    ) -> Result<(), DeviceError> {
        let (FeedForwardParams::Dense(params), FeedForwardSaved::Dense { hidden }) = (params, *saved);
        let context = self.context;
        context.scratch.scoped(|| {
            let normed = enter(context, normed)?;
            let filled = match activated {
                None => params.up.forward(context, normed, hidden),
                Some(activated) => params.up.forward_activated(context, normed, hidden, activated),
            };
            filled.map(|_| ())
        })
    }

    /// The place of the activation's output `[T, F]`, or of its gradient, in scratch.
    pub(crate) fn lay_out_activated(&self, params: &FeedForwardParams) -> Tensor {
        let FeedForwardParams::Dense(params) = params;
        self.context.activation(self.context.scratch, self.context.shape.tokens(), activated_width(params))
    }

    /// The activation's output `[T, F]`, in scratch, from its input.
    pub(crate) fn activate(&self, params: &FeedForwardParams, saved: &FeedForwardSaved) -> Result<Tensor, DeviceError> {
        let FeedForwardSaved::Dense { hidden: x } = *saved;
        let (activation, y) = (self.context.model.activation, self.lay_out_activated(params));
        self.context.submit(Op::Activation { activation, x, y })?;
        Ok(y)
    }

    /// Down projection of the activation's output without bias, assigned or added to `sum[T, D]+tp`.
    pub(crate) fn project(
        &self,
        params: &FeedForwardParams,
        activated: Tensor,
        sum: Tensor,
        write: Write,
    ) -> Result<Partial, DeviceError> {
        let FeedForwardParams::Dense(params) = params;
        params.down.forward(self.context, Sharded::new(activated), sum, write)
    }

    /// Gradient of the normed residual, in `pending`, from that of the block's output.
    pub(crate) fn backward_input(
        &self,
        params: &FeedForwardParams,
        saved: &FeedForwardSaved,
        dy: Residual,
        pending: &FeedForwardPending,
    ) -> Result<Residual, DeviceError> {
        let context = self.context;
        let (FeedForwardParams::Dense(dense), FeedForwardSaved::Dense { hidden: x }) = (params, *saved);
        let FeedForwardPending::Dense { activated, hidden, input } = *pending;
        context.scratch.scoped(|| {
            let gradient = self.lay_out_activated(params);
            dense.down.backward_activated(context, enter(context, dy)?, x, (hidden, activated), gradient)
        })?;
        context.scratch.scoped(|| {
            let sum = Partial::target(context, input);
            let partial = dense.up.backward_input(context, Sharded::new(hidden), sum)?;
            leave(context, partial)?.kept_at(context, input)
        })
    }

    /// Gradients of all parameters of the block; `normed` is its input, `dy` the gradient of its output.
    pub(crate) fn backward_weight(
        &self,
        gradients: &FeedForwardParams,
        pending: &FeedForwardPending,
        normed: Residual,
        dy: Residual,
        write: Write,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        let FeedForwardParams::Dense(gradients) = gradients;
        let FeedForwardPending::Dense { activated, hidden, input: _ } = *pending;
        gradients.down.backward_bias(context, dy, write)?;
        if gradients.down.is_trained(context) {
            context.scratch.scoped(|| {
                gradients.down.backward_weight(context, Sharded::new(activated), enter(context, dy)?, write)
            })?;
        }
        if !gradients.up.is_trained(context) {
            return Ok(());
        }
        context
            .scratch
            .scoped(|| gradients.up.backward_weight(context, enter(context, normed)?, Sharded::new(hidden), write))
    }
}
