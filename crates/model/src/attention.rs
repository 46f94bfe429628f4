//! Attention on the heads of this rank: fused projection, norms of queries and keys, rotation, softmax, output
//! projection.
//!
//! `H`, `K` and `d` are the rank's query heads, its key (and value) heads and their width. The block maps the normed
//! residual to a pending sum without bias; the layer sums it and adds bias, dropout and the residual stream.

use config::{Norm, NormKind, Position};
use device::{
    Alibi, AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Direction, Frame, NormBackward, Op,
    Tensor, Write,
};

use crate::binding::{AttentionParams, QkNormParams};
use crate::cache::KeyValueCache;
use crate::context::{Batch, Context, DropoutSite};
use crate::context_parallel;
use crate::context_parallel::attention::KeysValues;
use crate::gradient_sums::{Contributions, clear, sum_contributions};
use crate::placement::{Partial, Residual, Sharded, enter};
use crate::projection::ProjectionPending;
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

/// Further activations of the norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QkNormSaved {
    /// `[T, (H + K) d]`: normed and rotated queries and keys.
    normed: Tensor,
    /// `[(H + K) T, 2]`: head after head.
    stats: Tensor,
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
        let qkv_frame = if context.model.qk_norm { frames.until_weight } else { frames.until_input };
        let core = frames.core();
        AttentionSaved {
            qkv: context.activation(qkv_frame, tokens, qkv_width(&shape)),
            qk_norm: context.model.qk_norm.then(|| QkNormSaved {
                normed: context.activation(core.until_input, tokens, qk_width(&shape)),
                stats: core.until_weight.floats((shape.heads + shape.kv_heads) * tokens, 2),
            }),
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
            normed_qk: context.model.qk_norm.then(|| context.activation(frame, tokens, qk_width(&shape))),
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
            self.norm_heads(norms, saved.qkv, qk_norm)?;
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
            visible: self.batch.visible,
            scale: self.scale(),
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
            self.norm_heads_backward(norms, saved.qkv, qk_norm, gradient_qk, pending.qkv)?;
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
        context.scratch.scoped(|| {
            gradients.output.backward_weight(context, Sharded::new(saved.out), enter(context, dy)?, write)
        })?;
        if let (Some(norms), Some(qk_norm), Some(dy)) = (&gradients.qk_norm, &saved.qk_norm, pending.normed_qk) {
            self.norm_heads_gradient(norms, saved.qkv, qk_norm, dy, write)?;
        }
        let dy = (pending.qkv, &pending.projection);
        gradients.projection.backward_weight(context, (self.batch, normed), dy, write)
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.context.model.head_dim as f64).sqrt()) as f32
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
            (self.context.constants.rotary, self.context.model.position)
        else {
            return Ok(());
        };
        let (cos, sin) = (tables.cos, tables.sin);
        let (head_dim, positions) = (self.context.model.head_dim, self.batch.positions);
        self.context.submit(Op::Rotary { x: qk, head_dim, positions, cos, sin, pairing, direction })
    }

    /// Every query and key head has the width of the weight, so one operation norms one head: its columns of all
    /// tokens.
    fn norm_heads(&self, norms: &QkNormParams, qk: Tensor, saved: &QkNormSaved) -> Result<(), DeviceError> {
        let norm = self.qk_norm();
        for head in self.heads(norms) {
            let (x, y, stats) = (head.columns(qk), head.columns(saved.normed), head.stats(saved));
            self.context.submit(Op::Norm { norm, x, weight: head.weight, bias: None, y, stats })?;
        }
        Ok(())
    }

    fn norm_heads_backward(
        &self,
        norms: &QkNormParams,
        qk: Tensor,
        saved: &QkNormSaved,
        dy: Tensor,
        dx: Tensor,
    ) -> Result<(), DeviceError> {
        for head in self.heads(norms) {
            let tensors = NormBackward {
                norm: self.qk_norm(),
                x: head.columns(qk),
                weight: head.weight,
                stats: head.stats(saved),
                dy: head.columns(dy),
                dx: head.columns(dx),
            };
            self.context.submit(Op::NormBackwardInput { tensors, write: Write::Assign })?;
        }
        Ok(())
    }

    /// The sum over this rank's heads; the sum over tensor parallelism is the reduction's, as the parameter declares.
    fn norm_heads_gradient(
        &self,
        gradients: &QkNormParams,
        qk: Tensor,
        saved: &QkNormSaved,
        dy: Tensor,
        write: Write,
    ) -> Result<(), DeviceError> {
        clear(self.context, gradients.query, write)?;
        clear(self.context, gradients.key, write)?;
        for head in self.heads(gradients) {
            let (norm, x, stats, dy) = (self.qk_norm(), head.columns(qk), head.stats(saved), head.columns(dy));
            let contributions = Contributions::of_sequences(self.context).of_each(self.context.model.num_heads);
            sum_contributions(
                self.context,
                contributions,
                [head.weight],
                Write::Accumulate,
                |rows, [dweight], write| {
                    clear(self.context, dweight, write)?;
                    let (x, stats, dy) = (x.rows_of(rows.clone()), stats.rows_of(rows.clone()), dy.rows_of(rows));
                    self.context.submit(Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias: None })
                },
            )?;
        }
        Ok(())
    }

    fn qk_norm(&self) -> Norm {
        Norm { kind: NormKind::Rms, epsilon: self.context.model.norm.epsilon }
    }

    /// Query heads, then key heads, each with its norm's weight.
    fn heads(&self, norms: &QkNormParams) -> impl Iterator<Item = AttentionHead> + use<> {
        let (shape, norms) = (attention_shape(self.context), *norms);
        let (tokens, width) = (self.context.shape.tokens(), shape.head_dim);
        (0..shape.heads + shape.kv_heads).map(move |index| {
            let weight = if index < shape.heads { norms.query } else { norms.key };
            AttentionHead { index, width, tokens, weight }
        })
    }
}

/// One head of the queries and keys.
struct AttentionHead {
    index: usize,
    width: usize,
    tokens: usize,
    weight: Tensor,
}

impl AttentionHead {
    fn columns(&self, qk: Tensor) -> Tensor {
        qk.cols_of(self.index * self.width..(self.index + 1) * self.width)
    }

    fn stats(&self, saved: &QkNormSaved) -> Tensor {
        saved.stats.rows_of(self.index * self.tokens..(self.index + 1) * self.tokens)
    }
}
