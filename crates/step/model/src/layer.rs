//! One transformer layer: two blocks, attention and feed-forward, each after a norm, before one or between two, and the
//! residual stream next to them.
//!
//! ```text
//! sequential   r = x + A(n1(x))             y = r + F(n2(r))
//! parallel     r = x + A(n1(x))             y = r + F(n2(x))
//! post norm    r = x + m1(A(x))             y = r + m2(F(r))
//! sandwich     r = x + m1(A(n1(x)))         y = r + m2(F(n2(r)))
//! DeepNorm     r = alpha n1(x) + A(n1(x))   y = alpha n2(r) + F(n2(r))
//! ```
//! `A` and `F` are the blocks with bias and dropout. They map a normed residual to a pending sum and know nothing of
//! each other. Parallel blocks without dropout are added up before the sum over tensor parallelism is taken: once, not
//! twice. A norm's output is as wide as what it reads, which is kept anyway, and cheap, so it is not kept: the backward
//! pass of the input writes it again for that of the weights. The input of a norm after a block is kept for it.

use config::Blocks;
use device::{DeviceError, Frame, Tensor, Write};

use crate::attention::Attention;
use crate::binding::{BlockNorms, LayerParams};
use crate::cache::KeyValueCache;
use crate::context::{Batch, Context, DropoutSite};
use crate::dropout::{self, DropoutSum, ResidualDropout};
use crate::feed_forward::{Activated, FeedForward};
use crate::layer_tensors::{LayerPending, LayerSaved, SumSaved};
use crate::norm::NormParams;
use crate::placement::{Partial, Residual, leave};
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

/// The output of a block, which is added to the residual stream.
struct Block {
    sum: Residual,
    bias: Option<Tensor>,
    dropout: Option<ResidualDropout>,
}

/// The way of a block's sum into the stream, dropout last.
struct Branch<'a> {
    bias: Option<Tensor>,
    norm: Option<(&'a NormParams, SumSaved)>,
    dropout: Option<ResidualDropout>,
}

impl Branch<'_> {
    /// Where the sum that is to end at `to[R, D]` is formed.
    fn place(&self, to: Tensor) -> Tensor {
        self.norm.map_or(to, |(_, saved)| saved.sum)
    }
}

/// A norm before a block, with its statistics, and what it reads, or the block without one.
#[derive(Clone, Copy)]
struct Entry<'a> {
    norm: Option<(&'a NormParams, Tensor)>,
    x: Residual,
}

/// The residual that a block's output is added to: `[R, D]`, times `scale`.
#[derive(Clone, Copy)]
struct ScaledResidual {
    residual: Tensor,
    scale: f32,
}

impl ScaledResidual {
    fn unscaled(residual: Residual) -> ScaledResidual {
        ScaledResidual { residual: residual.tensor(), scale: 1.0 }
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
        self.forward_keeping(params, input, output, &LayerSaved::lay_out(frames, self.context, params), None)
    }

    /// Computes as [`Layer::forward`] does, for tokens that continue those of `cache`, to which their keys and values
    /// are added. Intervals of visible keys count from the cache's first token.
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
        self.forward_keeping(params, input, output, &LayerSaved::lay_out(frames, self.context, params), Some(cache))
    }

    /// Computes as [`Layer::forward`] or [`Layer::forward_cached`] does, with the saved set at a place of the
    /// caller's.
    pub(crate) fn forward_keeping(
        &self,
        params: &LayerParams,
        input: Residual,
        output: Residual,
        saved: &LayerSaved,
        cache: Option<&KeyValueCache>,
    ) -> Result<(), DeviceError> {
        self.fill_attention(params, input, saved, cache)?;
        let (context, scratch) = (self.context, self.context.scratch);
        scratch.scoped(|| -> Result<(), DeviceError> {
            let Some(middle) = saved.middle else { return self.forward_parallel(params, input, saved, output) };
            let normed = match context.model.blocks {
                Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::Sandwich => None,
                Blocks::DeepNorm { alpha } => {
                    Some(ScaledResidual { residual: context.residual(scratch), scale: alpha })
                }
            };
            let place = normed.map(|normed| normed.residual);
            let block = self.feed_forward_block(params, input, saved, place, output.tensor())?;
            self.add(normed.unwrap_or(ScaledResidual::unscaled(Residual::new(middle))), block, output)
        })?;
        self.feed_forward().count_choices(&saved.feed_forward)
    }

    /// The feed-forward block of parallel ones, and the sum of both.
    fn forward_parallel(
        &self,
        params: &LayerParams,
        input: Residual,
        saved: &LayerSaved,
        output: Residual,
    ) -> Result<(), DeviceError> {
        let at_once = self.feed_forward().lay_out_at_once(&params.feed_forward);
        self.fill_feed_forward(params, input, saved, None, at_once)?;
        if self.attention_dropout().is_none() {
            return self.add_both(params, input, (saved, at_once), output);
        }
        // Each block has a mask of its own, of its sum.
        let to = self.context.residual(self.context.scratch);
        let middle = self.add_attention(params, ScaledResidual::unscaled(input), saved, to)?;
        let activated = self.activated(params, (saved, at_once))?;
        let block = self.feed_forward_sum(params, saved, activated, output.tensor())?;
        self.add(ScaledResidual::unscaled(middle), block, output)
    }

    /// The output of the feed-forward block's activation, unless it was computed at once.
    fn activated(
        &self,
        params: &LayerParams,
        (saved, at_once): (&LayerSaved, Option<Activated>),
    ) -> Result<Activated, DeviceError> {
        let activate = || self.feed_forward().activate(&params.feed_forward, &saved.feed_forward);
        at_once.map_or_else(activate, Ok)
    }

    /// `output[R, D]` assigned: the stream and both parallel blocks, without dropout.
    fn add_both(
        &self,
        params: &LayerParams,
        input: Residual,
        (saved, at_once): (&LayerSaved, Option<Activated>),
        output: Residual,
    ) -> Result<(), DeviceError> {
        let (context, out) = (self.context, output.tensor());
        let sum = Partial::target(context, out);
        self.attention().project(&params.attention, &saved.attention, sum)?;
        let activated = (&saved.feed_forward, self.activated(params, (saved, at_once))?);
        let sum = self.feed_forward().project(&params.feed_forward, activated, sum, Write::Accumulate)?;
        let block = Block { sum: leave(context, sum)?, bias: params.attention.output.bias, dropout: None };
        self.add(ScaledResidual::unscaled(input), block, output)?;
        let Some(bias) = params.feed_forward.output_bias() else { return Ok(()) };
        dropout::add(context, DropoutSum { x: out, bias: Some(bias), residual: None, residual_scale: 1.0, out }, None)
    }

    /// Fills the saved set from `input` again, without the output: the same bits as [`Layer::forward`] leaves there.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn recompute(&self, params: &LayerParams, input: Residual, frames: SavedFrames) -> Result<(), DeviceError> {
        let (context, saved) = (self.context, LayerSaved::lay_out(frames, self.context, params));
        self.fill_attention(params, input, &saved, None)?;
        if saved.feed_forward_sum.is_none() {
            return self.fill_feed_forward(params, input, &saved, None, None);
        }
        let scratch = context.scratch;
        scratch.scoped(|| self.feed_forward_block(params, input, &saved, None, context.residual(scratch)).map(|_| ()))
    }

    /// Fills what the attention core leaves again, in frames with sections of their own for it, from what was kept: the
    /// same bits as [`Layer::forward`] leaves there.
    ///
    /// # Errors
    /// The device's.
    pub fn recompute_core(&self, params: &LayerParams, frames: SavedFrames) -> Result<(), DeviceError> {
        let saved = LayerSaved::lay_out(frames, self.context, params);
        self.attention().core(&params.attention, &saved.attention, None)
    }

    /// `input_gradient[R, D]` assigned from `output_gradient[R, D]`; leaves in `pending` what
    /// [`Layer::backward_weight`] reads.
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
        let (saved, pending) =
            (LayerSaved::lay_out(frames, self.context, params), self.lay_out_pending(pending, params));
        self.backward_input_keeping(params, input, output_gradient, input_gradient, (&saved, &pending))
    }

    /// Computes as [`Layer::backward_input`] does, with what is saved and left at places of the caller's.
    pub(crate) fn backward_input_keeping(
        &self,
        params: &LayerParams,
        input: Residual,
        output_gradient: Residual,
        input_gradient: Residual,
        (saved, pending): (&LayerSaved, &LayerPending),
    ) -> Result<(), DeviceError> {
        let (context, dx) = (self.context, input_gradient.tensor());
        let dy = self.drop_gradient(output_gradient, pending.feed_forward_output, self.feed_forward_dropout())?;
        let dy = self.before_norm(&params.feed_forward_norms, saved.feed_forward_sum, dy, pending.feed_forward_sum)?;
        let second = entry(&params.feed_forward_norms, saved.second_input(input), saved.feed_forward_stats);
        // Where ranks divide experts, these read the block's input once more.
        if context.ep.is_some() {
            self.norm_again(second, pending.feed_forward_normed)?;
        }
        let normed = pending.feed_forward_normed.map_or(second.x, Residual::new);
        let (tensors, into) = (&saved.feed_forward, &pending.feed_forward);
        let feed_forward = self.feed_forward().backward_input(&params.feed_forward, tensors, (normed, dy), into)?;
        if context.ep.is_none() {
            self.norm_again(second, pending.feed_forward_normed)?;
        }
        let middle = match context.model.blocks {
            // The gradient of r: the input's gradient is r's plus what comes through the attention block. Where the
            // backward pass of the weights reads r's gradient itself, it has a place of its own.
            Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. } => {
                let is_read_again = self.attention_dropout().is_none();
                let place = pending.attention_output.filter(|_| is_read_again).unwrap_or(dx);
                self.around_block(second, feed_forward, output_gradient, place)?
            }
            Blocks::Parallel => output_gradient,
        };

        let dy = self.drop_gradient(middle, pending.attention_output, self.attention_dropout())?;
        let dy = self.before_norm(&params.attention_norms, saved.attention_sum, dy, pending.attention_sum)?;
        let attention = self.attention().backward_input(&params.attention, &saved.attention, dy, &pending.attention)?;
        let first = entry(&params.attention_norms, input, saved.attention_stats);
        self.norm_again(first, pending.attention_normed)?;
        self.around_block(first, attention, middle, dx)?;
        match (context.model.blocks, second.norm) {
            (Blocks::Sequential | Blocks::PostNorm | Blocks::Sandwich | Blocks::DeepNorm { .. }, _) => Ok(()),
            (Blocks::Parallel, None) => Ok(()),
            (Blocks::Parallel, Some((norm, stats))) => {
                norm.backward_input(context, second.x, stats, feed_forward, dx, Write::Accumulate).map(|_| ())
            }
        }
    }

    /// Writes what a block reads once more, where a norm makes it.
    fn norm_again(&self, entry: Entry, to: Option<Tensor>) -> Result<(), DeviceError> {
        let (Some((norm, _)), Some(to)) = (entry.norm, to) else { return Ok(()) };
        norm.forward_again(self.context, entry.x, to)
    }

    /// The gradient of a block's sum from that of its norm's output: at `to[R, D]`, or `dy` itself without a norm.
    fn before_norm(
        &self,
        norms: &BlockNorms,
        saved: Option<SumSaved>,
        dy: Residual,
        to: Option<Tensor>,
    ) -> Result<Residual, DeviceError> {
        let (Some(norm), Some(SumSaved { sum, stats }), Some(to)) = (&norms.after, saved, to) else { return Ok(dy) };
        norm.backward_input(self.context, Residual::new(sum), stats, dy, to, Write::Assign)
    }

    /// Gradient, assigned to `to[R, D]`, of what a block's norm reads: through the block, whose gradient of the normed
    /// residual is `block`, and next to it, where the stream has the gradient `dy`, which may be at `to`. The gradient
    /// of the norm's output ends in `block`.
    fn around_block(
        &self,
        Entry { norm, x }: Entry,
        block: Residual,
        dy: Residual,
        to: Tensor,
    ) -> Result<Residual, DeviceError> {
        let Some((norm, stats)) = norm else {
            let (x, residual) = (block.tensor(), Some(dy.tensor()));
            let sum = DropoutSum { x, bias: None, residual, residual_scale: 1.0, out: to };
            return dropout::add(self.context, sum, None).map(|()| Residual::new(to));
        };
        match self.context.model.blocks {
            Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::Sandwich => {
                dy.kept_at(self.context, to)?;
                norm.backward_input(self.context, x, stats, block, to, Write::Accumulate)
            }
            Blocks::DeepNorm { alpha } => {
                let (x_gradient, residual) = (block.tensor(), Some(dy.tensor()));
                let sum = DropoutSum { x: x_gradient, bias: None, residual, residual_scale: alpha, out: x_gradient };
                dropout::add(self.context, sum, None)?;
                norm.backward_input(self.context, x, stats, block, to, Write::Assign)
            }
        }
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
        let (saved, pending) =
            (LayerSaved::lay_out(frames, self.context, gradients), self.lay_out_pending(pending, gradients));
        self.backward_weight_keeping(gradients, input, output_gradient, (&saved, &pending), write)
    }

    /// Computes as [`Layer::backward_weight`] does, with what is saved and left at places of the caller's.
    pub(crate) fn backward_weight_keeping(
        &self,
        gradients: &LayerParams,
        input: Residual,
        output_gradient: Residual,
        (saved, pending): (&LayerSaved, &LayerPending),
        write: Write,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        let normed = pending.feed_forward_normed.map_or(saved.second_input(input), Residual::new);
        let dy = pending.feed_forward_output.map_or(output_gradient, Residual::new);
        let sums = (saved.feed_forward_sum, pending.feed_forward_sum);
        let dy = self.norm_after_gradient(&gradients.feed_forward_norms, sums, dy, write)?;
        let tensors = (&saved.feed_forward, &pending.feed_forward);
        self.feed_forward().backward_weight(&gradients.feed_forward, tensors, normed, dy, write)?;
        let second = entry(&gradients.feed_forward_norms, saved.second_input(input), saved.feed_forward_stats);
        if let Some((norm, stats)) = second.norm {
            norm.backward_weight(context, second.x, stats, pending.feed_forward.input(), write)?;
        }

        let normed = pending.attention_normed.map_or(input, Residual::new);
        let dy = pending.attention_output.map_or(output_gradient, Residual::new);
        let sums = (saved.attention_sum, pending.attention_sum);
        let dy = self.norm_after_gradient(&gradients.attention_norms, sums, dy, write)?;
        let tensors = (&saved.attention, &pending.attention);
        self.attention().backward_weight(&gradients.attention, tensors, normed, dy, write)?;
        let first = entry(&gradients.attention_norms, input, saved.attention_stats);
        first.norm.map_or(Ok(()), |(norm, stats)| {
            norm.backward_weight(context, input, stats, pending.attention.input(), write)
        })
    }

    /// Gradients of the norm after a block from that of its output; returns that of its input.
    fn norm_after_gradient(
        &self,
        gradients: &BlockNorms,
        (saved, pending): (Option<SumSaved>, Option<Tensor>),
        dy: Residual,
        write: Write,
    ) -> Result<Residual, DeviceError> {
        let (Some(norm), Some(SumSaved { sum, stats }), Some(pending)) = (&gradients.after, saved, pending) else {
            return Ok(dy);
        };
        norm.backward_weight(self.context, Residual::new(sum), stats, dy, write)?;
        Ok(Residual::new(pending))
    }

    /// Values that the attention block leaves, and the stream after it where that is kept.
    fn fill_attention(
        &self,
        params: &LayerParams,
        input: Residual,
        saved: &LayerSaved,
        cache: Option<&KeyValueCache>,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let normed = match entry(&params.attention_norms, input, saved.attention_stats).norm {
                Some((norm, stats)) => norm.forward(context, input, context.residual(context.scratch), stats)?,
                None => input,
            };
            self.attention().fill(&params.attention, normed, &saved.attention, cache)?;
            let Some(middle) = saved.middle else { return Ok(()) };
            let scaled_residual = match context.model.blocks {
                Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::Sandwich => {
                    ScaledResidual::unscaled(input)
                }
                Blocks::DeepNorm { alpha } => ScaledResidual { residual: normed.tensor(), scale: alpha },
            };
            self.add_attention(params, scaled_residual, saved, middle).map(|_| ())
        })
    }

    /// The feed-forward block, whose sum is formed for `to[R, D]`. Until then `to` holds the normed residual, which is
    /// left at `normed[R, D]` instead for who reads it once more.
    fn feed_forward_block(
        &self,
        params: &LayerParams,
        input: Residual,
        saved: &LayerSaved,
        normed: Option<Tensor>,
        to: Tensor,
    ) -> Result<Block, DeviceError> {
        let (feed_forward, normed) = (self.feed_forward(), Some(normed.unwrap_or(to)));
        // Adapters add to the activation's input, and their scratch would be next to its output.
        let activated = if params.feed_forward.adapts_hidden() {
            self.fill_feed_forward(params, input, saved, normed, None)?;
            feed_forward.activate(&params.feed_forward, &saved.feed_forward)?
        } else {
            let activated = feed_forward.lay_out_activated(&params.feed_forward);
            self.fill_feed_forward(params, input, saved, normed, Some(activated))?;
            activated
        };
        self.feed_forward_sum(params, saved, activated, to)
    }

    /// The input of the feed-forward block's activation, and its output where that has a place; the normed residual at
    /// `normed[R, D]`, or in scratch.
    fn fill_feed_forward(
        &self,
        params: &LayerParams,
        input: Residual,
        saved: &LayerSaved,
        normed: Option<Tensor>,
        activated: Option<Activated>,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let Entry { norm, x } =
                entry(&params.feed_forward_norms, saved.second_input(input), saved.feed_forward_stats);
            let place = || normed.unwrap_or_else(|| context.residual(context.scratch));
            let normed = norm.map_or(Ok(x), |(norm, stats)| norm.forward(context, x, place(), stats))?;
            self.feed_forward().fill(&params.feed_forward, normed, &saved.feed_forward, activated)
        })
    }

    /// Adds the output of the attention block to a residual, and assigns the sum to `to[R, D]`.
    fn add_attention(
        &self,
        params: &LayerParams,
        scaled_residual: ScaledResidual,
        saved: &LayerSaved,
        to: Tensor,
    ) -> Result<Residual, DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let norm = params.attention_norms.after.as_ref().zip(saved.attention_sum);
            let branch = Branch { bias: params.attention.output.bias, norm, dropout: self.attention_dropout() };
            let sum = Partial::target(context, branch.place(to));
            let sum = self.attention().project(&params.attention, &saved.attention, sum)?;
            let (block, out) = (self.leave_block(sum, branch, to)?, Residual::new(to));
            self.add(scaled_residual, block, out)?;
            Ok(out)
        })
    }

    /// The sum of the feed-forward block from its activation's output, formed for `to[R, D]`.
    fn feed_forward_sum(
        &self,
        params: &LayerParams,
        saved: &LayerSaved,
        activated: Activated,
        to: Tensor,
    ) -> Result<Block, DeviceError> {
        let norm = params.feed_forward_norms.after.as_ref().zip(saved.feed_forward_sum);
        let branch = Branch { bias: params.feed_forward.output_bias(), norm, dropout: self.feed_forward_dropout() };
        let sum = Partial::target(self.context, branch.place(to));
        let activated = (&saved.feed_forward, activated);
        let sum = self.feed_forward().project(&params.feed_forward, activated, sum, Write::Assign)?;
        self.leave_block(sum, branch, to)
    }

    /// The sum over tensor parallelism; with a norm after the block, its output at `to[R, D]`, its input kept.
    fn leave_block(&self, sum: Partial, branch: Branch, to: Tensor) -> Result<Block, DeviceError> {
        let (context, Branch { bias, norm, dropout }) = (self.context, branch);
        let sum = leave(context, sum)?;
        let Some((norm, saved)) = norm else { return Ok(Block { sum, bias, dropout }) };
        match bias {
            None => sum.kept_at(context, saved.sum)?,
            Some(_) => {
                let (x, out) = (sum.tensor(), saved.sum);
                dropout::add(context, DropoutSum { x, bias, residual: None, residual_scale: 1.0, out }, None)?;
                Residual::new(out)
            }
        };
        let sum = norm.forward(context, Residual::new(saved.sum), to, saved.stats)?;
        Ok(Block { sum, bias: None, dropout })
    }

    /// `out[R, D]` assigned: what the block is added to, plus `dropout(sum + bias)`.
    fn add(&self, scaled_residual: ScaledResidual, block: Block, out: Residual) -> Result<(), DeviceError> {
        let Block { sum, bias, dropout: masked } = block;
        let (x, residual, out) = (sum.tensor(), Some(scaled_residual.residual), out.tensor());
        dropout::add(self.context, DropoutSum { x, bias, residual, residual_scale: scaled_residual.scale, out }, masked)
    }

    /// The gradient in front of a dropout: masked into `to`, or `dy` itself where nothing is dropped.
    fn drop_gradient(
        &self,
        dy: Residual,
        to: Option<Tensor>,
        masked: Option<ResidualDropout>,
    ) -> Result<Residual, DeviceError> {
        let (Some(masked), Some(dx)) = (masked, to) else { return Ok(dy) };
        masked.backward(self.context, dy.tensor(), dx)?;
        Ok(Residual::new(dx))
    }

    /// Lays out what the backward pass of the input leaves; `params` may be accumulators, too.
    pub(crate) fn lay_out_pending(&self, frame: &Frame, params: &LayerParams) -> LayerPending {
        LayerPending::lay_out(frame, self.context, params, [self.attention_dropout(), self.feed_forward_dropout()])
    }

    fn attention(&self) -> Attention<'_> {
        Attention { context: self.context, batch: self.batch, layer: self.number }
    }

    fn feed_forward(&self) -> FeedForward<'_> {
        FeedForward { context: self.context, batch: self.batch, layer: self.number }
    }

    fn attention_dropout(&self) -> Option<ResidualDropout> {
        self.context.residual_dropout(DropoutSite::attention_output(self.number))
    }

    fn feed_forward_dropout(&self) -> Option<ResidualDropout> {
        self.context.residual_dropout(DropoutSite::feed_forward_output(self.number))
    }
}

/// The way of `x` into a block with these `norms`.
fn entry<'a>(norms: &'a BlockNorms, x: Residual, stats: Option<Tensor>) -> Entry<'a> {
    Entry { norm: norms.before.as_ref().zip(stats), x }
}
