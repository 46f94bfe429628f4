//! Where a layer's passes find what the passes before them left: kept from the forward pass, or only between the two
//! backward passes.

use config::Blocks;
use device::{Frame, Tensor};

use crate::attention::{AttentionPending, AttentionSaved};
use crate::binding::LayerParams;
use crate::context::Context;
use crate::dropout::ResidualDropout;
use crate::feed_forward::{FeedForwardPending, FeedForwardSaved};
use crate::placement::Residual;
use crate::saved::SavedFrames;

/// Values that the backward passes read, besides the layer's input and its output's gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerSaved {
    /// `[R, 2]`: statistics of the rows that the first norm reads.
    pub(crate) attention_stats: Tensor,
    pub(crate) attention: AttentionSaved,
    /// `r[R, D]`: the residual stream between the blocks, where the second norm reads it.
    pub(crate) middle: Option<Tensor>,
    /// `[R, 2]`.
    pub(crate) feed_forward_stats: Tensor,
    pub(crate) feed_forward: FeedForwardSaved,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerPending {
    /// `[R, D]`: gradient of the feed-forward block's output. Without dropout that is the gradient of the layer's
    /// output, which is read again.
    pub(crate) feed_forward_output: Option<Tensor>,
    /// `[R, D]`: what the feed-forward block read.
    pub(crate) feed_forward_normed: Tensor,
    pub(crate) feed_forward: FeedForwardPending,
    /// `[R, D]`: gradient of the attention block's output. Without dropout that is the gradient of `r`; of parallel
    /// blocks, that of the layer's output.
    pub(crate) attention_output: Option<Tensor>,
    /// `[R, D]`: what the attention block read.
    pub(crate) attention_normed: Tensor,
    pub(crate) attention: AttentionPending,
}

impl LayerSaved {
    /// Lays out the saved set; the same calls in forward and backward passes give the same places. `params` may be
    /// accumulators, too.
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context, params: &LayerParams) -> LayerSaved {
        let stats = || frames.until_weight.floats(context.residual_rows().len(), 2);
        LayerSaved {
            attention_stats: stats(),
            attention: AttentionSaved::lay_out(frames, context),
            middle: match context.model.blocks {
                Blocks::Sequential | Blocks::DeepNorm { .. } => Some(context.residual(frames.until_weight)),
                Blocks::Parallel => None,
            },
            feed_forward_stats: stats(),
            feed_forward: FeedForwardSaved::lay_out(frames, context, &params.feed_forward),
        }
    }

    /// The tensor that the second norm reads.
    pub(crate) fn second_input(&self, input: Residual) -> Residual {
        self.middle.map_or(input, Residual::new)
    }
}

impl LayerPending {
    /// Lays out the set for blocks with these dropouts; `params` may be accumulators, too.
    pub(crate) fn lay_out(
        frame: &Frame,
        context: &Context,
        params: &LayerParams,
        [attention, feed_forward]: [Option<ResidualDropout>; 2],
    ) -> LayerPending {
        let lay_out = || context.residual(frame);
        LayerPending {
            feed_forward_output: feed_forward.map(|_| lay_out()),
            feed_forward_normed: lay_out(),
            feed_forward: FeedForwardPending::lay_out(frame, context, &params.feed_forward),
            attention_output: match context.model.blocks {
                Blocks::Sequential | Blocks::DeepNorm { .. } => Some(lay_out()),
                Blocks::Parallel => attention.map(|_| lay_out()),
            },
            attention_normed: lay_out(),
            attention: AttentionPending::lay_out(frame, context, &params.attention),
        }
    }
}
