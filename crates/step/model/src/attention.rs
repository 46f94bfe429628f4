//! Attention on the heads of this rank: fused projection, norms of queries and keys, rotation, softmax, output
//! projection.
//!
//! `H`, `K` and `d` are the rank's query heads, its key (and value) heads and their width. The block maps the normed
//! residual to a pending sum without bias; the layer sums it and adds bias, dropout and the residual stream.

use config::{Position, QkNorm, Unit};
use device::{
    Alibi, AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Direction, Frame, Op, Tensor, Write,
};

use crate::binding::{AttentionParams, QkNormParams};
use crate::cache::KeyValueCache;
use crate::context::{Batch, Context, DropoutSite};
use crate::context_parallel;
use crate::context_parallel::keys_values::KeysValues;
use crate::placement::{Partial, Residual, Sharded, enter};
use crate::projection::ProjectionPending;
use crate::qk_norm::{QkNormSaved, QkNorms};
use crate::saved::SavedFrames;

/// Values that the backward passes of an attention block read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionSaved {
    /// `[T, (H + 2K) d]`: output of the fused projection. Without query and key norms rotated in place, and then needed
    /// only until the backward pass of the input.
    qkv: Tensor,
    /// With query and key norms.
    qk_norm: Option<QkNormSaved>,
    /// `[T, H]`; where ranks share sequences and exchange heads, of as many heads less and tokens more.
    log_sum_exp: Tensor,
    /// `[T, H d]`: input of the output projection.
    out: Tensor,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionPending {
    /// `[T, (H + 2K) d]`: gradient of the fused projection's output.
    qkv: Tensor,
    /// `[T, (H + K) d]`: gradient of the normed queries and keys, before rotation.
    normed_qk: Option<Tensor>,
    /// The pending projection into queries, keys and values.
    projection: ProjectionPending,
}

/// Heads of this rank.
fn attention_shape(context: &Context) -> AttentionShape {
    let (model, tp) = (context.model, context.tp.size());
    AttentionShape {
        sequences: context.shape.sequences,
        sequence_length: context.shape.tokens_of_sequence(),
        heads: model.num_heads / tp,
        kv_heads: model.num_kv_heads / tp,
        head_dim: model.head_dim,
    }
}

/// Columns of queries and keys together.
fn qk_width(shape: &AttentionShape) -> usize {
    (shape.heads + shape.kv_heads) * shape.head_dim
}

/// Columns of the fused projection's output.
fn qkv_width(shape: &AttentionShape) -> usize {
    (shape.heads + 2 * shape.kv_heads) * shape.head_dim
}

/// Queries, keys and values, or their gradients.
struct Qkv {
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

/// Takes `q | k` from `qk` and `v` from after them in `qkv`.
fn split(shape: &AttentionShape, qk: Tensor, qkv: Tensor) -> Qkv {
    let (query, both) = (shape.heads * shape.head_dim, qk_width(shape));
    Qkv { q: qk.cols_of(0..query), k: qk.cols_of(query..both), v: qkv.cols_of(both..qkv_width(shape)) }
}

impl AttentionSaved {
    pub(crate) fn lay_out(frames: SavedFrames, context: &Context) -> AttentionSaved {
        let (shape, tokens) = (attention_shape(context), context.shape.tokens());
        let core = frames.core();
        let qkv_frame = match context.model.qk_norm {
            QkNorm::Off => frames.until_input,
            QkNorm::Heads | QkNorm::Whole => frames.until_weight,
        };
        AttentionSaved {
            qkv: context.activation(qkv_frame, tokens, qkv_width(&shape)),
            qk_norm: QkNormSaved::lay_out(core, context, &shape),
            log_sum_exp: core.until_input.floats(tokens, shape.heads),
            out: context.activation(core.until_weight, tokens, shape.heads * shape.head_dim),
        }
    }

    /// The tensor that the softmax reads.
    fn query_key_value(&self, shape: &AttentionShape) -> Qkv {
        let qk = self.qk_norm.map_or(self.qkv.cols_of(0..qk_width(shape)), |saved| saved.normed);
        split(shape, qk, self.qkv)
    }
}

impl AttentionPending {
    pub(crate) fn lay_out(frame: &Frame, context: &Context, params: &AttentionParams) -> AttentionPending {
        let (shape, tokens) = (attention_shape(context), context.shape.tokens());
        AttentionPending {
            qkv: context.activation(frame, tokens, qkv_width(&shape)),
            normed_qk: match context.model.qk_norm {
                QkNorm::Off => None,
                QkNorm::Heads | QkNorm::Whole => Some(context.activation(frame, tokens, qk_width(&shape))),
            },
            projection: ProjectionPending::lay_out(frame, context, &params.projection),
        }
    }

    /// Gradient of the block's input.
    pub(crate) fn input(&self) -> Residual {
        Residual::new(self.projection.input)
    }
}

/// The attention block of one layer and microbatch.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) batch: &'a Batch,
    pub(crate) layer: u32,
}

impl Attention<'_> {
    /// Computes everything that the backward passes read from the normed residual.
    pub(crate) fn fill(
        &self,
        params: &AttentionParams,
        normed: Residual,
        saved: &AttentionSaved,
        cache: Option<&KeyValueCache>,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        params.projection.forward(context, self.batch, normed, saved.qkv)?;
        if saved.qk_norm.is_none() {
            self.rotate(saved.qkv.cols_of(0..qk_width(&attention_shape(context))), Direction::Forward)?;
        }
        self.core(params, saved, cache)
    }

    /// The attention core: from the projection, as it is kept, to the input of the output projection. Run again it
    /// leaves the same bits.
    pub(crate) fn core(
        &self,
        params: &AttentionParams,
        saved: &AttentionSaved,
        cache: Option<&KeyValueCache>,
    ) -> Result<(), DeviceError> {
        let (context, shape) = (self.context, attention_shape(self.context));
        if let (Some(norms), Some(qk_norm)) = (&params.qk_norm, &saved.qk_norm) {
            self.qk_norms(norms).forward(saved.qkv, qk_norm)?;
            self.rotate(qk_norm.normed, Direction::Forward)?;
        }
        if context.shape.slices.ranks > 1 {
            // Whole sequences are here, so there is nothing to remember.
            let operands = self.operands(saved.query_key_value(&shape), saved);
            return context_parallel::attention::forward(context, self.batch, &operands);
        }
        let read = self.remember(saved.query_key_value(&shape), cache)?;
        context.submit(Op::Attention { operands: self.operands(read, saved) })
    }

    /// The operands of the softmax.
    fn operands(&self, Qkv { q, k, v }: Qkv, saved: &AttentionSaved) -> AttentionOperands {
        AttentionOperands {
            shape: attention_shape(self.context),
            places: None,
            q,
            k,
            v,
            visible: self.batch.visible_in(self.window()).own,
            window: self.window(),
            scale: self.scale(),
            soft_cap: self.context.model.attention_soft_cap,
            alibi: self.alibi(),
            dropout: self.context.attention_dropout(self.dropout_site(), self.first_head()),
            out: saved.out,
            log_sum_exp: saved.log_sum_exp,
        }
    }

    /// Queries with all keys and values that they may see: with a cache, also those of the tokens before.
    fn remember(&self, new: Qkv, cache: Option<&KeyValueCache>) -> Result<Qkv, DeviceError> {
        let Some(cache) = cache else { return Ok(new) };
        cache.append(self.context, new.k, new.v)?;
        Ok(Qkv { q: new.q, k: cache.keys(), v: cache.values() })
    }

    /// Output projection without bias, assigned to `sum[T, D]+tp`.
    pub(crate) fn project(
        &self,
        params: &AttentionParams,
        saved: &AttentionSaved,
        sum: Tensor,
    ) -> Result<Partial, DeviceError> {
        params.output.forward(self.context, Sharded::new(saved.out), sum, Write::Assign)
    }

    /// Gradient of the normed residual, in `pending`, from that of the block's output.
    pub(crate) fn backward_input(
        &self,
        params: &AttentionParams,
        saved: &AttentionSaved,
        dy: Residual,
        pending: &AttentionPending,
    ) -> Result<Residual, DeviceError> {
        let (context, shape) = (self.context, attention_shape(self.context));
        let gradient_qk = pending.normed_qk.unwrap_or(pending.qkv.cols_of(0..qk_width(&shape)));
        context
            .scratch
            .scoped(|| self.backward_softmax(params, saved, dy, &split(&shape, gradient_qk, pending.qkv)))?;
        self.rotate(gradient_qk, Direction::Backward)?;
        if let (Some(norms), Some(qk_norm)) = (&params.qk_norm, &saved.qk_norm) {
            self.qk_norms(norms).backward_input(saved.qkv, qk_norm, gradient_qk, pending.qkv)?;
        }
        params.projection.backward_input(context, self.batch, pending.qkv, &pending.projection)
    }

    /// Gradients of queries, keys and values as the softmax read them.
    fn backward_softmax(
        &self,
        params: &AttentionParams,
        saved: &AttentionSaved,
        dy: Residual,
        gradients: &Qkv,
    ) -> Result<(), DeviceError> {
        let (context, shape) = (self.context, attention_shape(self.context));
        let dout = context.activation(context.scratch, saved.out.rows, saved.out.cols);
        context.scratch.scoped(|| params.output.backward_input(context, enter(context, dy)?, dout))?;
        let operands = self.operands(saved.query_key_value(&shape), saved);
        let Qkv { q: dq, k: dk, v: dv } = *gradients;
        if context.shape.slices.ranks > 1 {
            let to = KeysValues { k: dk, v: dv };
            return context_parallel::attention::backward(context, self.batch, &operands, [dout, dq], to);
        }
        let key_sums = context.scratch.floats(2 * context.shape.tokens() * shape.kv_heads, shape.head_dim);
        let gradients = AttentionGradients { dout, dq, dk, dv, key_sums };
        context.submit(Op::AttentionBackward { operands, gradients })
    }

    /// Gradients of all parameters of the block; `normed` is its input, `dy` the gradient of its output.
    pub(crate) fn backward_weight(
        &self,
        gradients: &AttentionParams,
        (saved, pending): (&AttentionSaved, &AttentionPending),
        normed: Residual,
        dy: Residual,
        write: Write,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        gradients.output.backward_bias(context, dy, write)?;
        if gradients.output.is_trained(context) {
            context.scratch.scoped(|| {
                gradients.output.backward_weight(context, Sharded::new(saved.out), enter(context, dy)?, write)
            })?;
        }
        if let (Some(norms), Some(qk_norm), Some(dy)) = (&gradients.qk_norm, &saved.qk_norm, pending.normed_qk) {
            self.qk_norms(norms).backward_weight(saved.qkv, qk_norm, dy, write)?;
        }
        let dy = (pending.qkv, &pending.projection);
        gradients.projection.backward_weight(context, (self.batch, normed), dy, write)
    }

    fn qk_norms<'b>(&'b self, params: &'b QkNormParams) -> QkNorms<'b> {
        QkNorms { context: self.context, shape: attention_shape(self.context), params }
    }

    fn scale(&self) -> f32 {
        let model = self.context.model;
        (1.0 / model.query_scalar.map_or(model.head_dim as f64, f64::from).sqrt()) as f32
    }

    fn window(&self) -> Option<usize> {
        self.context.model.window_of(Unit::Layer(self.layer))
    }

    fn alibi(&self) -> Option<Alibi> {
        match self.context.model.position {
            Position::Alibi => Some(Alibi { first_head: self.first_head(), num_heads: self.context.model.num_heads }),
            Position::Learned { .. } | Position::Rotary { .. } => None,
        }
    }

    fn first_head(&self) -> usize {
        self.context.tp.position() * attention_shape(self.context).heads
    }

    fn dropout_site(&self) -> DropoutSite {
        DropoutSite::attention_probabilities(self.layer)
    }

    /// Rotates queries and keys `[T, (H + K) d]` in place; a model without rotary positions has no tables.
    fn rotate(&self, qk: Tensor, direction: Direction) -> Result<(), DeviceError> {
        let (Some(tables), Position::Rotary { pairing, .. }) =
            (self.context.constants.rotary_of(self.window()), self.context.model.position)
        else {
            return Ok(());
        };
        let (cos, sin) = (tables.cos, tables.sin);
        let (head_dim, positions) = (self.context.model.head_dim, self.batch.positions);
        self.context.submit(Op::Rotary { x: qk, head_dim, positions, cos, sin, pairing, direction })
    }
}
