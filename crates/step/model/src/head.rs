//! The output of the model: final norm, the layer after it if there is one, vocabulary-parallel cross-entropy, logits.
//!
//! In training, logits are neither gathered nor stored whole: loss, gradient of the input and gradients of the weights
//! are computed together, by chunks of tokens. Of each row's logits, tensor-parallel ranks exchange the maximum and two
//! sums. Logits and their gradients are in single precision, whatever activations are stored as.

use std::ops::Range;

use config::{ModelSpec, Products};
use device::{DeviceError, LogitGradient, Op, Reduction, RowStatistics, SumTree, Tensor, Write, ZLoss};

use crate::binding::HeadParams;
use crate::cache::KeyValueCache;
use crate::context::{Batch, Context, MicrobatchShape};
use crate::context_parallel::losses;
use crate::dropout::{self, DropoutSum};
use crate::gradient_sums::{Contributions, sum_contributions};
use crate::linear::contribution_to_weight;
use crate::placement::{Partial, Residual, Sharded, Whole, enter, leave};
use crate::top_query::TopQuery;

/// The head on one microbatch.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// Device, group, model and sizes.
    pub context: &'a Context<'a>,
    /// Positions, mask and labels.
    pub batch: &'a Batch,
}

/// Where the head's gradients go.
#[derive(Clone, Copy, Debug)]
pub struct HeadGradients<'a> {
    /// Accumulators of the norm and of the output matrix.
    pub params: &'a HeadParams,
    /// Assign on a step's first microbatch, then accumulate.
    pub write: Write,
    /// Gradient of the head's input `[R, D]`, assigned: the output gradient of the last layer.
    pub input: Residual,
    /// Gradient of the objective with respect to one token's loss: the loss scale over the nominal number of tokens of
    /// a step.
    pub scale: f32,
}

/// The losses of a microbatch's tokens, in scratch.
#[derive(Clone, Copy)]
struct Losses {
    /// Cross-entropy `[1, T]`.
    loss: Tensor,
    /// The z-loss `[1, T]`, where the model is trained with one.
    z_loss: Option<ZLoss>,
}

impl Losses {
    fn lay_out(context: &Context<'_>) -> Losses {
        let tokens = || context.scratch.floats(1, context.shape.tokens());
        let loss = tokens();
        Losses { loss, z_loss: context.model.z_loss.map(|coefficient| ZLoss { coefficient, losses: tokens() }) }
    }

    fn of(&self, rows: Range<usize>) -> Losses {
        let z_loss = self.z_loss.map(|z_loss| ZLoss { losses: z_loss.losses.elements(rows.clone()), ..z_loss });
        Losses { loss: self.loss.elements(rows), z_loss }
    }
}

/// Chunks of `rows`, whose logits are in memory at once. The output matrix is read twice and its gradient read and
/// written once per chunk, so chunks span sequences.
fn chunks(context: &Context<'_>, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let tokens = context.products.head_tokens();
    rows.clone().step_by(tokens).map(move |first| first..rows.end.min(first + tokens))
}

impl Head<'_> {
    /// Forward and backward pass at once: losses are added to the step's sums, gradients written as `gradients` says.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn train(&self, params: &HeadParams, input: Residual, gradients: &HeadGradients) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let (normed, stats) = self.norm(params, input)?;
            let top_query = self.top_query(params, normed, None)?;
            let last = self.divided(top_query.as_ref().map_or(normed, |top_query| top_query.output))?;
            let losses = Losses::lay_out(context);
            let mut dy = self.divided(self.output(params, last, &losses, gradients)?)?;
            if let (Some(top_query), Some(of_layer)) = (top_query, &gradients.params.top_query) {
                dy = top_query.backward(of_layer, dy, gradients.write)?;
            }
            params.norm.backward_input(context, input, stats, dy, gradients.input.tensor(), Write::Assign)?;
            gradients.params.norm.backward_weight(context, input, stats, dy, gradients.write)?;
            self.sum_losses(&losses)
        })
    }

    /// Losses, gradients of the output matrix, and the gradient of what it reads, in scratch.
    fn output(
        &self,
        params: &HeadParams,
        input: Residual,
        losses: &Losses,
        gradients: &HeadGradients,
    ) -> Result<Residual, DeviceError> {
        let context = self.context;
        let input = enter(context, input)?;
        let gradient = context.activation(context.scratch, context.shape.tokens(), context.model.hidden);
        let (contributions, weight) = (Contributions::of_sequences(context), gradients.params.output.weight);
        // The gradient of what the matrix reads, and that of the matrix where it has a place.
        let chunked = |rows: Range<usize>, weight: Option<Tensor>, mut write: Write| {
            for rows in chunks(context, rows) {
                context.scratch.scoped(|| {
                    let x = input.rows_of(rows.clone());
                    let logits = self.chunk_logits(params, x)?;
                    let capped = self.kept(logits)?;
                    let dlogits = self.place_of_gradient(logits);
                    let into = if capped.is_none() { dlogits } else { logits };
                    let gradient_of = LogitGradient { scale: gradients.scale, into: into.tensor() };
                    self.cross_entropy(logits, rows.clone(), losses, Some(gradient_of))?;
                    self.before_cap(capped, logits, dlogits)?;
                    params.output.backward_input(context, dlogits, gradient.rows_of(rows))?;
                    match weight {
                        Some(weight) => contribution_to_weight(context, weight, x.tensor(), dlogits.tensor(), write),
                        None => Ok(()),
                    }
                })?;
                write = Write::Accumulate;
            }
            Ok(())
        };
        match context.trains_all() {
            true => sum_contributions(context, contributions, [weight], gradients.write, |rows, [weight], write| {
                chunked(rows, Some(weight), write)
            })?,
            false => chunked(0..context.shape.tokens(), None, gradients.write)?,
        }
        leave(context, Partial::new(gradient))
    }

    /// Losses are added to the step's sums; no gradients.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn evaluate(&self, params: &HeadParams, input: Residual) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let last = enter(context, self.last(params, input, None)?)?;
            let losses = Losses { z_loss: None, ..Losses::lay_out(context) };
            for rows in chunks(context, 0..context.shape.tokens()) {
                context.scratch.scoped(|| {
                    let logits = self.chunk_logits(params, last.rows_of(rows.clone()))?;
                    self.cross_entropy(logits, rows, &losses, None)
                })?;
            }
            self.sum_losses(&losses)
        })
    }

    /// `logits[tp * T, V/tp]` assigned on every rank: below each other the columns of each rank, for all tokens.
    /// Columns after the vocabulary are padding, for the reader to leave out. With a cache, tokens continue those of
    /// it.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub fn logits(
        &self,
        params: &HeadParams,
        input: Residual,
        cache: Option<&KeyValueCache>,
        logits: Tensor,
    ) -> Result<(), DeviceError> {
        let (context, tokens) = (self.context, self.context.shape.tokens());
        context.scratch.scoped(|| {
            let last = self.last(params, input, cache)?;
            let own = context.tp.position() * tokens..(context.tp.position() + 1) * tokens;
            let own = params.output.forward(context, enter(context, last)?, logits.rows_of(own))?;
            self.cap(own)
        })?;
        context.tp.all_gather(context.stream, logits)
    }

    /// Rows and columns of [`Head::logits`].
    pub fn logits_shape(model: &ModelSpec, tp: usize, shape: MicrobatchShape) -> (usize, usize) {
        (tp * shape.tokens(), model.padded_vocabulary(tp) / tp)
    }

    /// The normed input and its statistics, in scratch.
    fn norm(&self, params: &HeadParams, input: Residual) -> Result<(Residual, Tensor), DeviceError> {
        let (context, scratch) = (self.context, self.context.scratch);
        let (y, stats) = (context.residual(scratch), scratch.floats(context.residual_rows().len(), 2));
        Ok((params.norm.forward(self.context, input, y, stats)?, stats))
    }

    /// The layer after the final norm, if the model has one, on its output.
    fn top_query<'b>(
        &'b self,
        params: &'b HeadParams,
        normed: Residual,
        cache: Option<&KeyValueCache>,
    ) -> Result<Option<TopQuery<'b>>, DeviceError> {
        let layer = params.top_query.as_ref();
        layer.map(|layer| TopQuery::forward(self.context, self.batch, layer, normed, cache)).transpose()
    }

    /// The tensor that the output matrix reads, in scratch.
    fn last(
        &self,
        params: &HeadParams,
        input: Residual,
        cache: Option<&KeyValueCache>,
    ) -> Result<Residual, DeviceError> {
        let (normed, _) = self.norm(params, input)?;
        self.divided(self.top_query(params, normed, cache)?.map_or(normed, |top_query| top_query.output))
    }

    /// `x[R, D]` divided as logits are, in scratch, or `x` itself: what the output matrix reads, or, of its gradient,
    /// that of what is divided.
    fn divided(&self, x: Residual) -> Result<Residual, DeviceError> {
        let Some(divisor) = self.context.model.logit_divisor else { return Ok(x) };
        let out = self.context.residual(self.context.scratch);
        self.context.submit(Op::Fill { out, value: 0.0 })?;
        let (residual, residual_scale) = (Some(x.tensor()), 1.0 / divisor);
        dropout::add(self.context, DropoutSum { x: out, bias: None, residual, residual_scale, out }, None)?;
        Ok(Residual::new(out))
    }

    fn chunk_logits(&self, params: &HeadParams, x: Whole) -> Result<Sharded, DeviceError> {
        let logits = self.context.scratch.floats(x.tensor().rows, params.output.weight.rows);
        let logits = params.output.forward(self.context, x, logits)?;
        self.cap(logits)?;
        Ok(logits)
    }

    /// Caps logits in place, where the model has a cap.
    fn cap(&self, logits: Sharded) -> Result<(), DeviceError> {
        let Some(cap) = self.context.model.logit_soft_cap else { return Ok(()) };
        self.context.submit(Op::SoftCap { x: logits.tensor(), cap })
    }

    /// A copy of capped logits, whose place their gradients take.
    fn kept(&self, logits: Sharded) -> Result<Option<Tensor>, DeviceError> {
        let (context, from) = (self.context, logits.tensor());
        if context.model.logit_soft_cap.is_none() {
            return Ok(None);
        }
        let to = context.scratch.floats(from.rows, from.cols);
        context.submit(Op::Copy { from, to })?;
        Ok(Some(to))
    }

    /// Gradients of capped logits become those of logits, and are copied to their place.
    fn before_cap(&self, capped: Option<Tensor>, gradients: Sharded, place: Sharded) -> Result<(), DeviceError> {
        let (Some(y), Some(cap)) = (capped, self.context.model.logit_soft_cap) else { return Ok(()) };
        let (from, to) = (gradients.tensor(), place.tensor());
        self.context.submit(Op::SoftCapBackward { y, cap, gradient: from })?;
        if from == to { Ok(()) } else { self.context.submit(Op::Copy { from, to }) }
    }

    /// Losses of `rows`, and the gradient over `logits` where there is one.
    fn cross_entropy(
        &self,
        logits: Sharded,
        rows: Range<usize>,
        losses: &Losses,
        gradient: Option<LogitGradient>,
    ) -> Result<(), DeviceError> {
        let (context, logits) = (self.context, logits.tensor());
        let first_row = context.tp.position() * logits.cols;
        // The last ranks may hold padding only.
        let valid_columns = context.model.vocabulary.saturating_sub(first_row).min(logits.cols);
        let Losses { loss, z_loss } = losses.of(rows.clone());
        let labels = self.batch.labels.elements(rows);
        let statistics = match context.tp.size() {
            1 => None,
            _ => Some(self.statistics(logits, valid_columns, labels)?),
        };
        let op = Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss };
        context.submit(op)
    }

    /// Maxima and sums of rows, of which each rank has some columns. A rank that has all of them needs neither: the
    /// loss is one operation, which reads a row once.
    fn statistics(&self, logits: Tensor, valid_columns: usize, labels: Tensor) -> Result<RowStatistics, DeviceError> {
        let (context, first_row) = (self.context, self.context.tp.position() * logits.cols);
        let (max, sums) = (context.scratch.floats(1, logits.rows), context.scratch.floats(logits.rows, 2));
        context.submit(Op::RowMax { logits, valid_columns, out: max })?;
        context.tp.all_reduce(context.stream, max, Reduction::Max)?;
        context.submit(Op::SumExp { logits, valid_columns, max, labels, first_row, sums })?;
        context.tp.all_reduce(context.stream, sums, Reduction::Sum(SumTree::RANK_ORDER))?;
        Ok(RowStatistics { max, sums })
    }

    /// The place of the gradient of logits as products read it: that of the logits, or another one. Products in blocks
    /// round an operand of single precision to the type of the other one; here it is rounded once for the two products,
    /// which have the same bits and read half of it.
    fn place_of_gradient(&self, logits: Sharded) -> Sharded {
        let context = self.context;
        match context.products {
            Products::Chained | Products::Pairs => logits,
            Products::Blocks16 | Products::Blocks8 | Products::Device => {
                let Tensor { rows, cols, .. } = logits.tensor();
                Sharded::new(context.activation(context.scratch, rows, cols))
            }
        }
    }

    fn sum_losses(&self, losses: &Losses) -> Result<(), DeviceError> {
        let constants = &self.context.constants;
        losses::add(self.context, self.batch, losses.loss, constants.loss_sums)?;
        match (losses.z_loss, constants.z_loss_sums) {
            (Some(z_loss), Some(sums)) => losses::add(self.context, self.batch, z_loss.losses, sums),
            (Some(_), None) | (None, _) => Ok(()),
        }
    }
}
