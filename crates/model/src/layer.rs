//! One transformer layer: norm, attention, residual, norm, feed-forward, residual (GPT-2 and Llama styles).
//!
//! ```text
//! n1 = norm(x)    r = x + dropout(attention(n1) + bias)
//! n2 = norm(r)    y = r + dropout(feed_forward(n2) + bias)
//! ```
//! The blocks map a normed residual to a summed one and know nothing of each other, so other compositions (parallel
//! residual, norms behind the blocks) are other bodies of the functions in this file.

use device::{DeviceError, DropoutKey, Frame, Op, Tensor, Write};

use crate::attention::{Attention, AttentionPending, AttentionSaved};
use crate::binding::LayerParams;
use crate::cache::KeyValueCache;
use crate::context::{Batch, Context, DropoutSite};
use crate::feed_forward::{FeedForward, FeedForwardPending, FeedForwardSaved};
use crate::norm::NormSaved;
use crate::placement::Residual;
use crate::saved::SavedFrames;

/// Layer `number` on one microbatch.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// Device, group, model and sizes.
    pub context: &'a Context<'a>,
    /// Positions and mask.
    pub batch: &'a Batch,
    /// Counted from 0 over the whole model: keys the dropout masks.
    pub number: u32,
}

/// What the backward passes read, besides the layer's input and its output's gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSaved {
    attention_norm: NormSaved,
    attention: AttentionSaved,
    /// `r[R, D]`: the residual stream between the blocks.
    middle: Tensor,
    feed_forward_norm: NormSaved,
    feed_forward: FeedForwardSaved,
}

/// What the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPending {
    /// `[R, D]`: gradient of the feed-forward block's output. Without dropout that is the gradient of the layer's output, which is read again.
    feed_forward_output: Option<Tensor>,
    feed_forward: FeedForwardPending,
    /// `[R, D]`: gradient of the attention block's output. Without dropout that is the gradient of `r`.
    attention_output: Tensor,
    attention: AttentionPending,
}

/// What a block adds to the residual stream.
struct Block {
    sum: Residual,
    bias: Option<Tensor>,
    dropout: Option<DropoutKey>,
}

impl LayerSaved {
    /// Lays out the saved set; the same calls in forward and backward passes give the same places.
    pub fn place(frames: SavedFrames, context: &Context) -> LayerSaved {
        LayerSaved {
            attention_norm: NormSaved::place(frames.until_weight, context),
            attention: AttentionSaved::place(frames, context),
            middle: context.residual(frames.until_weight),
            feed_forward_norm: NormSaved::place(frames.until_weight, context),
            feed_forward: FeedForwardSaved::place(frames, context),
        }
    }

    fn middle(&self) -> Residual {
        Residual::new(self.middle)
    }
}

impl Layer<'_> {
    /// `output[R, D]` assigned from `input[R, D]`; leaves in `frames` what the backward passes read.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn forward(
        &self,
        params: &LayerParams,
        input: Residual,
        output: Residual,
        frames: SavedFrames,
    ) -> Result<(), DeviceError> {
        self.forward_through(params, input, output, frames, None)
    }

    /// As [`Layer::forward`] for tokens that continue those of `cache`, to which their keys and values are added. Intervals of visible
    /// keys count from the cache's first token.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn forward_cached(
        &self,
        params: &LayerParams,
        input: Residual,
        output: Residual,
        frames: SavedFrames,
        cache: &KeyValueCache,
    ) -> Result<(), DeviceError> {
        self.forward_through(params, input, output, frames, Some(cache))
    }

    fn forward_through(
        &self,
        params: &LayerParams,
        input: Residual,
        output: Residual,
        frames: SavedFrames,
        cache: Option<&KeyValueCache>,
    ) -> Result<(), DeviceError> {
        let saved = LayerSaved::place(frames, self.context);
        self.fill(params, input, &saved, cache)?;
        self.context.scratch.scoped(|| {
            let block = self.feed_forward().project(&params.feed_forward, &saved.feed_forward, output.tensor())?;
            let block = Block { sum: block, bias: params.feed_forward.down.bias, dropout: self.feed_forward_dropout() };
            self.add(saved.middle(), block, output)
        })
    }

    /// Fills the saved set from `input` again, without the output: the same bits as [`Layer::forward`] leaves there.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn recompute(&self, params: &LayerParams, input: Residual, frames: SavedFrames) -> Result<(), DeviceError> {
        self.fill(params, input, &LayerSaved::place(frames, self.context), None)
    }

    /// Fills what the attention core leaves again, in frames with sections of their own for it, from what was kept: the same bits as
    /// [`Layer::forward`] leaves there.
    ///
    /// # Errors
    /// The device's.
    pub fn recompute_core(&self, params: &LayerParams, frames: SavedFrames) -> Result<(), DeviceError> {
        let saved = LayerSaved::place(frames, self.context);
        self.attention().core(&params.attention, &saved.attention, None)
    }

    /// `input_gradient[R, D]` assigned from `output_gradient[R, D]`; leaves in `pending` what [`Layer::backward_weight`] reads.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn backward_input(
        &self,
        params: &LayerParams,
        input: Residual,
        output_gradient: Residual,
        input_gradient: Residual,
        frames: SavedFrames,
        pending: &Frame,
    ) -> Result<(), DeviceError> {
        let (context, dx) = (self.context, input_gradient.tensor());
        let (saved, pending) = (LayerSaved::place(frames, context), self.place_pending(pending));
        let dy = self.drop_gradient(output_gradient, pending.feed_forward_output, self.feed_forward_dropout())?;
        let normed =
            self.feed_forward().backward_input(&params.feed_forward, &saved.feed_forward, dy, &pending.feed_forward)?;
        // The gradient of r: the input's gradient is r's plus what comes through the attention block. Where the
        // backward pass of the weights reads r's gradient itself, it has a place of its own.
        let middle = if self.attention_dropout().is_some() { dx } else { pending.attention_output };
        context.submit(Op::Copy { from: output_gradient.tensor(), to: middle })?;
        let stats = saved.feed_forward_norm.stats;
        let middle = params.feed_forward_norm.backward_input(
            context,
            saved.middle(),
            stats,
            normed,
            middle,
            Write::Accumulate,
        )?;

        let dy = self.drop_gradient(middle, Some(pending.attention_output), self.attention_dropout())?;
        let normed = self.attention().backward_input(&params.attention, &saved.attention, dy, &pending.attention)?;
        if middle.tensor() != dx {
            context.submit(Op::Copy { from: middle.tensor(), to: dx })?;
        }
        let stats = saved.attention_norm.stats;
        params.attention_norm.backward_input(context, input, stats, normed, dx, Write::Accumulate)?;
        Ok(())
    }

    /// Gradients of all parameters of the layer: on a step's first microbatch assigned, then accumulated.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn backward_weight(
        &self,
        gradients: &LayerParams,
        input: Residual,
        output_gradient: Residual,
        frames: SavedFrames,
        pending: &Frame,
        write: Write,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        let (saved, pending) = (LayerSaved::place(frames, context), self.place_pending(pending));
        let normed = Residual::new(saved.feed_forward_norm.y);
        let dy = pending.feed_forward_output.map_or(output_gradient, Residual::new);
        self.feed_forward().backward_weight(&gradients.feed_forward, &pending.feed_forward, normed, dy, write)?;
        let (stats, dy) = (saved.feed_forward_norm.stats, pending.feed_forward.input());
        gradients.feed_forward_norm.backward_weight(context, saved.middle(), stats, dy, write)?;

        let normed = Residual::new(saved.attention_norm.y);
        let dy = Residual::new(pending.attention_output);
        let tensors = (&saved.attention, &pending.attention);
        self.attention().backward_weight(&gradients.attention, tensors, normed, dy, write)?;
        let (stats, dy) = (saved.attention_norm.stats, pending.attention.input());
        gradients.attention_norm.backward_weight(context, input, stats, dy, write)
    }

    /// Everything up to the input of the feed-forward block's activation.
    fn fill(
        &self,
        params: &LayerParams,
        input: Residual,
        saved: &LayerSaved,
        cache: Option<&KeyValueCache>,
    ) -> Result<(), DeviceError> {
        let NormSaved { y, stats } = saved.attention_norm;
        let normed = params.attention_norm.forward(self.context, input, y, stats)?;
        self.attention().fill(&params.attention, normed, &saved.attention, cache)?;
        self.context.scratch.scoped(|| {
            let block = self.attention().project(&params.attention, &saved.attention, saved.middle)?;
            let block = Block { sum: block, bias: params.attention.output.bias, dropout: self.attention_dropout() };
            self.add(input, block, saved.middle())
        })?;

        let NormSaved { y, stats } = saved.feed_forward_norm;
        let normed = params.feed_forward_norm.forward(self.context, saved.middle(), y, stats)?;
        self.feed_forward().fill(&params.feed_forward, normed, &saved.feed_forward)
    }

    /// `out = residual + dropout(sum + bias)`.
    fn add(&self, residual: Residual, block: Block, out: Residual) -> Result<(), DeviceError> {
        let Block { sum, bias, dropout } = block;
        let (x, residual, out) = (sum.tensor(), Some(residual.tensor()), out.tensor());
        self.context.submit(Op::DropoutAdd { x, bias, residual, dropout, out })
    }

    /// The gradient in front of a dropout: masked into `to`, or `dy` itself where nothing is dropped.
    fn drop_gradient(
        &self,
        dy: Residual,
        to: Option<Tensor>,
        dropout: Option<DropoutKey>,
    ) -> Result<Residual, DeviceError> {
        let (Some(dropout), Some(dx)) = (dropout, to) else { return Ok(dy) };
        self.context.submit(Op::DropoutBackward { dy: dy.tensor(), dropout, dx })?;
        Ok(Residual::new(dx))
    }

    fn place_pending(&self, frame: &Frame) -> LayerPending {
        let place = || self.context.residual(frame);
        LayerPending {
            feed_forward_output: self.feed_forward_dropout().map(|_| place()),
            feed_forward: FeedForwardPending::place(frame, self.context),
            attention_output: place(),
            attention: AttentionPending::place(frame, self.context),
        }
    }

    fn attention(&self) -> Attention<'_> {
        Attention { context: self.context, batch: self.batch, layer: self.number }
    }

    fn feed_forward(&self) -> FeedForward<'_> {
        FeedForward { context: self.context }
    }

    fn attention_dropout(&self) -> Option<DropoutKey> {
        self.context.residual_dropout(DropoutSite::attention_output(self.number))
    }

    fn feed_forward_dropout(&self) -> Option<DropoutKey> {
        self.context.residual_dropout(DropoutSite::feed_forward_output(self.number))
    }
}
