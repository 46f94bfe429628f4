//! The tensors of a block of experts: kept from the forward pass, or only between the two backward passes.

use config::ExpertsSpec;
use device::{Dtype, ExpertRows, Frame, Tensor};

use crate::binding::{ExpertsParams, SharedExpertParams};
use crate::context::Context;
use crate::dense::{DensePending, DenseSaved};
use crate::saved::SavedFrames;

/// Values that the backward passes read. `R` is the most rows that this rank's experts can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsSaved {
    pub(crate) routed: Routed,
    /// `[R, F]`, or gate | up `[R, 2F]`: input of the activation.
    pub(crate) hidden: Tensor,
    pub(crate) shared: Option<SharedSaved>,
}

/// The choice of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Routed {
    /// `[T, E]`, F32.
    pub(crate) logits: Tensor,
    /// `[T, k]`, I32: ascending.
    pub(crate) choice: Tensor,
    /// `[T, k]`, F32; kept until the backward pass of the weights where experts have biases.
    pub(crate) weights: Tensor,
    /// Kept until the backward pass of the weights.
    pub(crate) rows: ExpertRows,
}

/// See [`ExpertsSaved`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SharedSaved {
    pub(crate) dense: DenseSaved,
    /// With a gate: it is a router of one expert.
    pub(crate) gate: Option<Routed>,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsPending {
    /// `[R, F]`: the activation's output, times the weight of its row.
    pub(crate) activated: Tensor,
    /// Gradient of [`ExpertsSaved::hidden`].
    pub(crate) hidden: Tensor,
    /// `[T, E]`, F32: gradient of the router's logits.
    pub(crate) logits: Tensor,
    pub(crate) shared: Option<SharedPending>,
}

/// See [`ExpertsPending`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SharedPending {
    pub(crate) dense: DensePending,
    /// With a gate: `[T, 1]`, F32, gradient of its logits.
    pub(crate) gate: Option<Tensor>,
}

impl Routed {
    /// Lays out the choice of `per_token` of `experts`, of which this rank has `own` and is given `expected` rows where
    /// routing is balanced; the weights of the chosen in `of_weights`.
    fn lay_out(
        SavedFrames { until_input, until_weight, .. }: SavedFrames,
        context: &Context,
        [experts, per_token, own]: [usize; 3],
        expected: usize,
        of_weights: &Frame,
    ) -> Routed {
        let tokens = context.shape.tokens();
        Routed {
            logits: until_input.floats(tokens, experts),
            choice: until_input.tensor(tokens, per_token, Dtype::I32),
            weights: of_weights.floats(tokens, per_token),
            rows: ExpertRows {
                places: until_weight.tensor(tokens, per_token, Dtype::I32),
                slots: until_weight.tensor(1, tokens * per_token.min(own), Dtype::I32),
                offsets: until_weight.tensor(1, own + 1, Dtype::I32),
                expected,
            },
        }
    }
}

/// Rows that this rank's experts can have, and a tensor of `width` for each in `frame`.
fn of_rows(context: &Context, frame: &Frame, width: usize) -> Tensor {
    let rows = spec(context).most_rows(context.shape.tokens(), context.tp.size());
    context.activation(frame, rows, width)
}

/// The experts of the model.
pub(crate) fn spec<'a>(context: &Context<'a>) -> &'a ExpertsSpec {
    match &context.model.experts {
        Some(experts) => experts,
        None => panic!("parameters of experts are declared by a model that has experts"),
    }
}

/// Laying out; `params` may be accumulators, too.
impl ExpertsSaved {
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context, params: &ExpertsParams) -> ExpertsSaved {
        let ExpertsSpec { number, per_token, .. } = *spec(context);
        let ranks = context.tp.size();
        let expected = (context.shape.tokens() * per_token).div_ceil(ranks);
        // The gradient of a bias of outputs is a sum of rows times their weights.
        let of_weights = if params.down_bias.is_some() { frames.until_weight } else { frames.until_input };
        ExpertsSaved {
            routed: Routed::lay_out(frames, context, [number, per_token, number / ranks], expected, of_weights),
            hidden: params.hidden(context, frames.until_input),
            shared: params.shared.map(|shared| SharedSaved {
                dense: shared.dense.lay_out_saved(context, frames.until_input),
                gate: shared
                    .gate
                    .map(|_| Routed::lay_out(frames, context, [1; 3], context.shape.tokens(), frames.until_input)),
            }),
        }
    }
}

impl ExpertsPending {
    pub(crate) fn lay_out(frame: &Frame, context: &Context, params: &ExpertsParams) -> ExpertsPending {
        let tokens = context.shape.tokens();
        ExpertsPending {
            activated: params.activated(context, frame),
            hidden: params.hidden(context, frame),
            logits: frame.floats(tokens, spec(context).number),
            shared: params.shared.map(|SharedExpertParams { dense, gate }| SharedPending {
                dense: dense.lay_out_pending(context, frame),
                gate: gate.map(|_| frame.floats(tokens, 1)),
            }),
        }
    }
}

impl ExpertsParams {
    /// `[R, F]` or `[R, 2F]` in `frame`.
    fn hidden(&self, context: &Context, frame: &Frame) -> Tensor {
        of_rows(context, frame, self.down.cols * context.model.activation.inputs_per_output())
    }

    /// `[R, F]` in `frame`.
    pub(crate) fn activated(&self, context: &Context, frame: &Frame) -> Tensor {
        of_rows(context, frame, self.down.cols)
    }
}

/// `[R, D]` in scratch.
pub(crate) fn row_tensor(context: &Context) -> Tensor {
    of_rows(context, context.scratch, context.model.hidden)
}
