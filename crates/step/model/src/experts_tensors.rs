//! The tensors of a block of experts: kept from the forward pass, or only between the two backward passes.

use config::ExpertsSpec;
use device::{Dtype, ExpertRows, Frame, Tensor};

use crate::binding::{ExpertsParams, SharedExpertParams};
use crate::context::Context;
use crate::dense::{DensePending, DenseSaved};
use crate::expert_rounds::Sizes;
use crate::experts_spec::spec;
use crate::saved::SavedFrames;

/// Values that the backward passes read. `R` is the most rows that this rank's experts can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsSaved {
    pub(crate) routed: Routed,
    pub(crate) kept: ExpertsKept,
    pub(crate) shared: Option<SharedSaved>,
}

/// The value from which backward passes compute experts again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ExpertsKept {
    /// `[R, F]`, or gate | up `[R, 2F]`: input of the activation.
    Hidden(Tensor),
    /// `[T, k]`, I32: the choices that experts compute. Where several ranks divide experts, rows of other ranks are
    /// not kept but sent again.
    Choices(Tensor),
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
    /// Gradient of the activation's input.
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
    /// Lays out the choice of `per_token` of `experts`, with `rows`; the weights of the chosen in `of_weights`.
    fn lay_out(
        until_input: &Frame,
        context: &Context,
        [experts, per_token]: [usize; 2],
        of_weights: &Frame,
        rows: impl FnOnce() -> ExpertRows,
    ) -> Routed {
        let tokens = context.shape.tokens();
        Routed {
            logits: until_input.floats(tokens, experts),
            choice: until_input.tensor(tokens, per_token, Dtype::I32),
            weights: of_weights.floats(tokens, per_token),
            rows: rows(),
        }
    }
}

/// Lays out the rows of `own` experts, of which `tokens` tokens choose `per_token`, and `expected` rows where routing
/// is balanced.
pub(crate) fn lay_out_rows(frame: &Frame, [tokens, per_token, own]: [usize; 3], expected: usize) -> ExpertRows {
    ExpertRows {
        places: frame.tensor(tokens, per_token, Dtype::I32),
        slots: frame.tensor(1, tokens * per_token.min(own), Dtype::I32),
        offsets: frame.tensor(1, own + 1, Dtype::I32),
        expected,
    }
}

/// Rows that this rank's experts can have, and a tensor of `width` for each in `frame`.
fn of_rows(context: &Context, frame: &Frame, width: usize) -> Tensor {
    let rows = match Sizes::of(context) {
        None => spec(context).most_rows(context.shape.tokens(), context.tp.size()),
        Some(sizes) => sizes.rows(),
    };
    context.activation(frame, rows, width)
}

/// Laying out; `params` may be accumulators, too.
impl ExpertsSaved {
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context, params: &ExpertsParams) -> ExpertsSaved {
        let ExpertsSpec { number, per_token, .. } = *spec(context);
        let (SavedFrames { until_input, until_weight, .. }, tokens) = (frames, context.shape.tokens());
        let (ranks, sizes) = (context.tp.size(), Sizes::of(context));
        let expected = (tokens * per_token).div_ceil(ranks);
        let rows = || match sizes {
            None => lay_out_rows(until_weight, [tokens, per_token, number / ranks], expected),
            Some(sizes) => sizes.lay_out_sent(until_weight),
        };
        // The gradient of a bias of outputs is a sum of rows times their weights.
        let of_weights = if params.down_bias.is_some() { until_weight } else { until_input };
        ExpertsSaved {
            routed: Routed::lay_out(until_input, context, [number, per_token], of_weights, rows),
            kept: match sizes {
                None => ExpertsKept::Hidden(params.hidden(context, until_input)),
                Some(_) => ExpertsKept::Choices(until_weight.tensor(tokens, per_token, Dtype::I32)),
            },
            shared: params.shared.map(|shared| SharedSaved {
                dense: shared.dense.lay_out_saved(context, until_input),
                gate: shared.gate.map(|_| {
                    let rows = || lay_out_rows(until_weight, [tokens, 1, 1], tokens);
                    Routed::lay_out(until_input, context, [1; 2], until_input, rows)
                }),
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
