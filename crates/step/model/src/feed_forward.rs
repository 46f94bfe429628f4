//! The feed-forward block: a dense one, or experts.
//!
//! The block maps the normed residual to a pending sum without bias; the layer sums it and adds bias, dropout and the
//! residual stream.

use device::{DeviceError, Frame, Tensor, Write};

use crate::binding::FeedForwardParams;
use crate::context::{Batch, Context};
use crate::dense::{DensePending, DenseSaved};
use crate::experts::{Experts, ExpertsActivated};
use crate::experts_tensors::{ExpertsPending, ExpertsSaved};
use crate::placement::{Partial, Residual, Sharded, enter};
use crate::router_balance::RouterBalance;
use crate::saved::SavedFrames;

/// Values that the backward passes of a feed-forward block read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a layer has one, laid out once for each pass")]
pub(crate) enum FeedForwardSaved {
    Dense(DenseSaved),
    Experts(ExpertsSaved),
}

/// Values that the backward pass of the input leaves for that of the weights, with the gradient `[R, D]` of the block's
/// input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeedForwardPending {
    Dense { tensors: DensePending, input: Tensor },
    Experts { tensors: ExpertsPending, input: Tensor },
}

/// The output of a block's activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activated {
    /// `[T, F]`.
    Dense(Tensor),
    Experts(ExpertsActivated),
}

impl FeedForwardSaved {
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context, params: &FeedForwardParams) -> FeedForwardSaved {
        match params {
            FeedForwardParams::Dense(params) => {
                FeedForwardSaved::Dense(params.lay_out_saved(context, frames.until_input))
            }
            FeedForwardParams::Experts(params) => {
                FeedForwardSaved::Experts(ExpertsSaved::lay_out(frames, context, params))
            }
        }
    }
}

impl FeedForwardPending {
    pub(crate) fn lay_out(frame: &Frame, context: &Context, params: &FeedForwardParams) -> FeedForwardPending {
        match params {
            FeedForwardParams::Dense(params) => {
                let tensors = params.lay_out_pending(context, frame);
                FeedForwardPending::Dense { tensors, input: context.residual(frame) }
            }
            FeedForwardParams::Experts(params) => {
                let tensors = ExpertsPending::lay_out(frame, context, params);
                FeedForwardPending::Experts { tensors, input: context.residual(frame) }
            }
        }
    }

    /// Gradient of the block's input.
    pub(crate) fn input(&self) -> Residual {
        match *self {
            FeedForwardPending::Dense { input, .. } | FeedForwardPending::Experts { input, .. } => Residual::new(input),
        }
    }
}

impl FeedForwardParams {
    /// The bias of the block's output, which is added once, after the sum over tensor parallelism.
    pub(crate) fn output_bias(&self) -> Option<Tensor> {
        match self {
            FeedForwardParams::Dense(params) => params.down.bias,
            FeedForwardParams::Experts(_) => None,
        }
    }

    /// Whether adapters add to the input of the activation.
    pub(crate) fn adapts_hidden(&self) -> bool {
        match self {
            FeedForwardParams::Dense(params) => params.up.has_adapters(),
            FeedForwardParams::Experts(_) => false,
        }
    }
}

/// The feed-forward block of one layer and microbatch.
#[derive(Clone, Copy)]
pub(crate) struct FeedForward<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) batch: &'a Batch,
    pub(crate) layer: u32,
}

impl FeedForward<'_> {
    /// Computes everything that the backward passes read from the normed residual. The activation's output is written
    /// to `activated` at once where it has a place.
    pub(crate) fn fill(
        &self,
        params: &FeedForwardParams,
        normed: Residual,
        saved: &FeedForwardSaved,
        activated: Option<Activated>,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| match (params, saved, activated) {
            (FeedForwardParams::Dense(params), FeedForwardSaved::Dense(saved), None) => {
                params.fill(context, enter(context, normed)?, *saved, None)
            }
            (FeedForwardParams::Dense(params), FeedForwardSaved::Dense(saved), Some(Activated::Dense(activated))) => {
                params.fill(context, enter(context, normed)?, *saved, Some(activated))
            }
            (FeedForwardParams::Experts(params), FeedForwardSaved::Experts(saved), None) => {
                self.experts().fill(params, enter(context, normed)?, saved, None)
            }
            (
                FeedForwardParams::Experts(params),
                FeedForwardSaved::Experts(saved),
                Some(Activated::Experts(activated)),
            ) => self.experts().fill(params, enter(context, normed)?, saved, Some(activated)),
            (FeedForwardParams::Dense(_) | FeedForwardParams::Experts(_), _, _) => of_another_kind(),
        })
    }

    /// The place of the activation's output, in scratch.
    pub(crate) fn lay_out_activated(&self, params: &FeedForwardParams) -> Activated {
        match params {
            FeedForwardParams::Dense(params) => {
                Activated::Dense(params.lay_out_activated(self.context, self.context.scratch))
            }
            FeedForwardParams::Experts(params) => Activated::Experts(self.experts().lay_out_activated(params)),
        }
    }

    /// The same where it is computed with the block's input, as by experts of other ranks; `None` where it can be
    /// computed later.
    pub(crate) fn lay_out_at_once(&self, params: &FeedForwardParams) -> Option<Activated> {
        match params {
            FeedForwardParams::Dense(_) => None,
            FeedForwardParams::Experts(_) => self.context.ep.map(|_| self.lay_out_activated(params)),
        }
    }

    /// The activation's output, in scratch, from its input.
    pub(crate) fn activate(
        &self,
        params: &FeedForwardParams,
        saved: &FeedForwardSaved,
    ) -> Result<Activated, DeviceError> {
        match (params, saved) {
            (FeedForwardParams::Dense(params), FeedForwardSaved::Dense(saved)) => {
                Ok(Activated::Dense(params.activate(self.context, *saved)?))
            }
            (FeedForwardParams::Experts(params), FeedForwardSaved::Experts(saved)) => {
                Ok(Activated::Experts(self.experts().activate(params, saved)?))
            }
            (FeedForwardParams::Dense(_) | FeedForwardParams::Experts(_), _) => of_another_kind(),
        }
    }

    /// Down projection of the activation's output without bias, assigned or added to `sum[T, D]+tp`.
    pub(crate) fn project(
        &self,
        params: &FeedForwardParams,
        (saved, activated): (&FeedForwardSaved, Activated),
        sum: Tensor,
        write: Write,
    ) -> Result<Partial, DeviceError> {
        match (params, saved, activated) {
            (FeedForwardParams::Dense(params), FeedForwardSaved::Dense(_), Activated::Dense(activated)) => {
                params.down.forward(self.context, Sharded::new(activated), sum, write)
            }
            (FeedForwardParams::Experts(params), FeedForwardSaved::Experts(saved), Activated::Experts(activated)) => {
                self.experts().project(params, (saved, activated), sum, write)
            }
            (FeedForwardParams::Dense(_) | FeedForwardParams::Experts(_), _, _) => of_another_kind(),
        }
    }

    /// Gradient of the normed residual, in `pending`, from that of the block's output; `normed` is the block's input.
    pub(crate) fn backward_input(
        &self,
        params: &FeedForwardParams,
        saved: &FeedForwardSaved,
        (normed, dy): (Residual, Residual),
        pending: &FeedForwardPending,
    ) -> Result<Residual, DeviceError> {
        match (params, saved, pending) {
            (
                FeedForwardParams::Dense(params),
                FeedForwardSaved::Dense(saved),
                FeedForwardPending::Dense { tensors, input },
            ) => params.backward_input(self.context, *saved, dy, (*tensors, *input)),
            (
                FeedForwardParams::Experts(params),
                FeedForwardSaved::Experts(saved),
                FeedForwardPending::Experts { tensors, input },
            ) => self.experts().backward_input(params, saved, (normed, dy), (tensors, *input)),
            (FeedForwardParams::Dense(_) | FeedForwardParams::Experts(_), _, _) => of_another_kind(),
        }
    }

    /// Gradients of all parameters of the block; `normed` is its input, `dy` the gradient of its output.
    pub(crate) fn backward_weight(
        &self,
        gradients: &FeedForwardParams,
        (saved, pending): (&FeedForwardSaved, &FeedForwardPending),
        normed: Residual,
        dy: Residual,
        write: Write,
    ) -> Result<(), DeviceError> {
        match (gradients, saved, pending) {
            (
                FeedForwardParams::Dense(gradients),
                FeedForwardSaved::Dense(_),
                FeedForwardPending::Dense { tensors, input: _ },
            ) => gradients.backward_weight(self.context, *tensors, normed, dy, write),
            (
                FeedForwardParams::Experts(gradients),
                FeedForwardSaved::Experts(saved),
                FeedForwardPending::Experts { tensors, input: _ },
            ) => self.experts().backward_weight(gradients, (saved, tensors), (normed, dy), write),
            (FeedForwardParams::Dense(_) | FeedForwardParams::Experts(_), _, _) => of_another_kind(),
        }
    }

    /// Adds what the block's router chose to the sums of a training step.
    pub(crate) fn count_choices(&self, saved: &FeedForwardSaved) -> Result<(), DeviceError> {
        match saved {
            FeedForwardSaved::Dense(_) => Ok(()),
            FeedForwardSaved::Experts(saved) => self.experts().balance.count(saved.routed),
        }
    }

    fn experts(&self) -> Experts<'_> {
        let FeedForward { context, batch, layer } = *self;
        Experts { context, balance: RouterBalance { context, batch, layer } }
    }
}

fn of_another_kind() -> ! {
    panic!("the tensors of a feed-forward block are laid out from its own parameters")
}
