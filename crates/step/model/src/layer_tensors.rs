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
    /// `[R, 2]`: statistics of the rows that the norm before attention reads.
    pub(crate) attention_stats: Option<Tensor>,
    pub(crate) attention: AttentionSaved,
    pub(crate) attention_sum: Option<SumSaved>,
    /// `r[R, D]`: the residual stream between the blocks, where the second norm reads it.
    pub(crate) middle: Option<Tensor>,
    /// `[R, 2]`.
    pub(crate) feed_forward_stats: Option<Tensor>,
    pub(crate) feed_forward: FeedForwardSaved,
    pub(crate) feed_forward_sum: Option<SumSaved>,
}

/// The input of a norm after a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SumSaved {
    /// `[R, D]`: the block's output with its bias.
    pub(crate) sum: Tensor,
    /// `[R, 2]`.
    pub(crate) stats: Tensor,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerPending {
    /// `[R, D]`: gradient of the feed-forward block's output. Without dropout that is the gradient of the layer's
    /// output, which is read again.
    pub(crate) feed_forward_output: Option<Tensor>,
    /// `[R, D]`: gradient of the input of the norm after the block.
    pub(crate) feed_forward_sum: Option<Tensor>,
    /// `[R, D]`: what the feed-forward block read, after a norm.
    pub(crate) feed_forward_normed: Option<Tensor>,
    pub(crate) feed_forward: FeedForwardPending,
    /// `[R, D]`: gradient of the attention block's output. Without dropout that is the gradient of `r`; of parallel
    /// blocks, that of the layer's output.
    pub(crate) attention_output: Option<Tensor>,
    /// `[R, D]`: gradient of the input of the norm after the block.
    pub(crate) attention_sum: Option<Tensor>,
    /// `[R, D]`: what the attention block read, after a norm.
    pub(crate) attention_normed: Option<Tensor>,
    pub(crate) attention: AttentionPending,
}

impl LayerSaved {
    /// Lays out the saved set; the same calls in forward and backward passes give the same places. `params` may be
    /// accumulators, too.
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context, params: &LayerParams) -> LayerSaved {
        let stats = || frames.until_weight.floats(context.residual_rows().len(), 2);
        let sum = || SumSaved { sum: context.residual(frames.until_weight), stats: stats() };
        let (of_attention, of_feed_forward) = (&params.attention_norms, &params.feed_forward_norms);
        LayerSaved {
            attention_stats: of_attention.before.map(|_| stats()),
            attention: AttentionSaved::lay_out(frames, context),
            attention_sum: of_attention.after.map(|_| sum()),
            middle: match context.model.blocks {
                Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
                    Some(context.residual(frames.until_weight))
                }
                Blocks::Parallel => None,
            },
            feed_forward_stats: of_feed_forward.before.map(|_| stats()),
            feed_forward: FeedForwardSaved::lay_out(frames, context, &params.feed_forward),
            feed_forward_sum: of_feed_forward.after.map(|_| sum()),
        }
    }

    /// The tensor that the feed-forward block, or the norm before it, reads.
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
        let (of_attention, of_feed_forward) = (&params.attention_norms, &params.feed_forward_norms);
        LayerPending {
            feed_forward_output: feed_forward.map(|_| lay_out()),
            feed_forward_sum: of_feed_forward.after.map(|_| lay_out()),
            feed_forward_normed: of_feed_forward.before.map(|_| lay_out()),
            feed_forward: FeedForwardPending::lay_out(frame, context, &params.feed_forward),
            attention_output: match context.model.blocks {
                Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => Some(lay_out()),
                Blocks::Parallel => attention.map(|_| lay_out()),
            },
            attention_sum: of_attention.after.map(|_| lay_out()),
            attention_normed: of_attention.before.map(|_| lay_out()),
            attention: AttentionPending::lay_out(frame, context, &params.attention),
        }
    }
}
