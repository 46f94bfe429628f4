//! Operations as values: what a layer asks of a device.
//!
//! Shapes: `T` tokens of a microbatch (`B` sequences of `S`), `D` hidden width, `F` feed-forward width, `V` vocabulary,
//! all local to the rank.
//!
//! Real numbers are F32, or narrow where a variant says `stored`: all operands that it names so have one type, which
//! may be F32, Bf16 or F16. Whatever the types, an operation computes in F32 and rounds each stored result once.
//!
//! Every operation is deterministic: its bits depend on its inputs alone, not on the
//! instruction set, the number of rows or the number of threads.

use config::{Activation, Norm, Pairing, RotaryScaling};

use crate::Tensor;
use crate::adamw::AdamWUpdate;
use crate::attention::{AttentionGradients, AttentionOperands};
use crate::balance::BalanceOp;
use crate::dropout_key::DropoutKey;
use crate::experts::ExpertOp;
use crate::operands::Operands;

/// Whether a result replaces what was there or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `out = result`
    Assign,
    /// `out = out + result`
    Accumulate,
}

/// How a matrix product reads its operands; all are row-major, the sum runs over `K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// `out[M,N] = a[M,K] b[N,K]^T`: the forward pass, `Y[T,O] = X[T,I] W[O,I]^T`.
    Nt,
    /// `out[M,N] = a[M,K] b[K,N]`: gradient of the input, `dX = dY W`.
    Nn,
    /// `out[M,N] = a[K,M]^T b[K,N]`: gradient of the weights, `dW = dY^T X`.
    Tn,
}

/// How real numbers become whole ones, whose sums do not depend on the order of their terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// The unit: a power of two.
    pub unit: f32,
    /// Values of this magnitude and more, and NaN, are refused.
    pub limit: f32,
}

/// Tensors of a norm's backward pass with respect to its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormBackward {
    pub norm: Norm,
    /// The norm's input `x[R,C]`.
    pub x: Tensor,
    /// `weight[C]`.
    pub weight: Tensor,
    /// `[R,2]`: mean and reciprocal standard deviation, as the forward pass left them.
    pub stats: Tensor,
    /// Gradient of the norm's output `[R,C]`.
    pub dy: Tensor,
    /// Gradient of its input `[R,C]`.
    pub dx: Tensor,
}

/// One operation. Each variant's sentence names its fields. Tensors are places, so an operation is `Copy` and can be
/// recorded, replayed and printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// `out = a . b (+ bias[N])`, see [`Orientation`]. One chain of fused multiply-adds per element over `K` in blocks
    /// of a constant size. Stored: `a`; `b`; `out` with `bias`. Each of the three may have a type of its own.
    MatMul { orientation: Orientation, a: Tensor, b: Tensor, bias: Option<Tensor>, out: Tensor, write: Write },
    /// `out[N] += sum over rows of x[R,N]`: gradient of a bias. Stored: `x`.
    ColumnSum { x: Tensor, out: Tensor },
    /// `y[R,C] = norm(x[R,C]) * weight[C] + bias[C]`; `stats[R,2]` = mean, reciprocal standard deviation.
    /// Stored: `x`, `weight`, `bias`, `y`.
    Norm { norm: Norm, x: Tensor, weight: Tensor, bias: Option<Tensor>, y: Tensor, stats: Tensor },
    /// Gradient of a norm's input, assigned or added to `dx`. Stored: all but `stats`.
    NormBackwardInput { tensors: NormBackward, write: Write },
    /// `dweight[C] += sum(dy * xhat)`, `dbias[C] += sum(dy)`, over rows. Stored: `x`, `dy`.
    NormBackwardWeight { norm: Norm, x: Tensor, stats: Tensor, dy: Tensor, dweight: Tensor, dbias: Option<Tensor> },
    /// `cos[P,R/2]`, `sin[P,R/2]` for positions `0..P`: angle `p * scaled(base^(-2i/R))`, computed in double precision.
    RotaryTable { cos: Tensor, sin: Tensor, base: f32, scaling: RotaryScaling },
    /// Rotates `x[T, heads*head_dim]` in place by `positions[T]`; `Backward` rotates the other way. Stored: `x`.
    Rotary {
        x: Tensor,
        head_dim: usize,
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        pairing: Pairing,
        direction: Direction,
    },
    /// `out`, `log_sum_exp` of softmax attention of `q` on the visible `k`, `v` of the same sequence, see
    /// [`AttentionOperands`]. Never writes `S x S`. Stored: `q`, `k`, `v`, `out`.
    Attention { operands: AttentionOperands },
    /// `dq`, `dk`, `dv` from `dout`, see [`AttentionGradients`]; probabilities are recomputed.
    /// Stored: all but `visible`, `log_sum_exp` and `key_sums`.
    AttentionBackward { operands: AttentionOperands, gradients: AttentionGradients },
    /// `out[T, H d]`, `log_sum_exp[T, H]` = those of attention on `part`'s keys, or become those of attention on these
    /// keys and on their own, none of which is among both: each output by its share of the sum of exponentials. Stored:
    /// `part`; the others F32.
    JoinAttention {
        part: Tensor,
        part_log_sum_exp: Tensor,
        out: Tensor,
        log_sum_exp: Tensor,
        head_dim: usize,
        write: Write,
    },
    /// `y[T,F] = activation(x[T,F])`, gated kinds read `x[T,2F]` = gate | up. Stored: all.
    Activation { activation: Activation, x: Tensor, y: Tensor },
    /// `dx` (shape of `x`) from `dy[T,F]`; also writes `y[T,F]` again, so that it need not be kept. Stored: all.
    ActivationBackward { activation: Activation, x: Tensor, dy: Tensor, dx: Tensor, y: Tensor },
    /// `x = a . b^T (+ bias)`, then `y = activation(x)`: the bits of [`Op::MatMul`] with [`Orientation::Nt`] and
    /// [`Op::Activation`]. Stored: `a`; `b`; `x` and `y` with `bias`.
    MatMulActivation { a: Tensor, b: Tensor, bias: Option<Tensor>, activation: Activation, x: Tensor, y: Tensor },
    /// `dy = a . b`, then `dx` and `y` from `x` and `dy`: the bits of [`Op::MatMul`] with [`Orientation::Nn`] and
    /// [`Op::ActivationBackward`]. `dy[T,F]` is memory that the operation may use: its contents afterwards are not
    /// defined. Stored: `a`; `b`; the others.
    MatMulActivationBackward {
        a: Tensor,
        b: Tensor,
        activation: Activation,
        dy: Tensor,
        x: Tensor,
        dx: Tensor,
        y: Tensor,
    },
    /// `out[T,D] = residual_scale * residual[T,D] + dropout(x[T,D] + bias[D])`; `out` may be `x` or `residual`. Stored:
    /// all tensors.
    DropoutAdd {
        x: Tensor,
        bias: Option<Tensor>,
        residual: Option<Tensor>,
        residual_scale: f32,
        dropout: Option<DropoutKey>,
        out: Tensor,
    },
    /// `dx = mask * dy / (1 - p)`. Stored: all.
    DropoutBackward { dy: Tensor, dropout: DropoutKey, dx: Tensor },
    /// `out[T,D]` = or += `table[token - first_row]`, zeros for tokens of other ranks. Stored: `table`, `out`.
    EmbeddingLookup { tokens: Tensor, table: Tensor, first_row: usize, out: Tensor, write: Write },
    /// `dtable[token - first_row] += scale * dy[T,D]`, but for the row `untrained` of the whole table, in ascending
    /// order of tokens' places, product and sum rounded once. Stored: `dy`.
    EmbeddingBackward {
        tokens: Tensor,
        dy: Tensor,
        scale: f32,
        first_row: usize,
        untrained: Option<usize>,
        dtable: Tensor,
    },
    /// `x = cap tanh(x / cap)` in place, `x` F32.
    SoftCap { x: Tensor, cap: f32 },
    /// `gradient *= 1 - (y / cap)^2`, with the output `y` of [`Op::SoftCap`]; F32.
    SoftCapBackward { y: Tensor, cap: f32, gradient: Tensor },
    /// `out[R] = max over the first valid_columns of logits[R,V/tp]`.
    RowMax { logits: Tensor, valid_columns: usize, out: Tensor },
    /// `sums[R,2]` = sum of `exp(logit - max)` | `target logit - max`, or 0 where the target is on another rank or
    /// ignored.
    SumExp { logits: Tensor, valid_columns: usize, max: Tensor, labels: Tensor, first_row: usize, sums: Tensor },
    /// `loss[R] = log(sum) - (target - max)`, 0 for ignored labels; and the gradient over the logits where there is
    /// one: `(softmax - onehot) * scale` for valid labels and 0 for ignored ones and padded columns. With a z-loss,
    /// softmax is multiplied by `1 + 2 coefficient log_sum_exp`. Without `statistics`, rows have the whole vocabulary,
    /// and maxima and sums are those that [`Op::RowMax`] and [`Op::SumExp`] compute.
    CrossEntropy {
        logits: Tensor,
        valid_columns: usize,
        statistics: Option<RowStatistics>,
        labels: Tensor,
        first_row: usize,
        gradient: Option<LogitGradient>,
        loss: Tensor,
        z_loss: Option<ZLoss>,
    },
    /// `into` (I64, dense) = or += `x` (F32, dense) in units of `rounding`, each element rounded once, to the nearest
    /// whole number, ties to even. A refused one counts as zero, and one is added to the word [`NOT_FINITE_WORD`] of
    /// `refusals` (I64 limbs) for each.
    AddRounded { x: Tensor, rounding: Rounding, into: Tensor, write: Write, refusals: Tensor },
    /// `sums` (I64, dense) become `unit * sums` in F32, each rounded once, at the start of their place: the other half
    /// of it is free.
    RoundedToSingle { sums: Tensor, unit: f32 },
    /// `into += x`, real numbers or I64.
    Accumulate { x: Tensor, into: Tensor },
    /// `into = keep * into + factor * x`, F32: the product with `factor` is rounded, then the sum once. With `keep` 0,
    /// `into` is assigned.
    ScaledSum { x: Tensor, factor: f32, into: Tensor, keep: f32 },
    /// `out = value` in every element. Stored or I64: `out`.
    Fill { out: Tensor, value: f32 },
    /// `to = from`, row by row. Stored: `from`; `to`. Types that differ are converted. Or both are I64.
    Copy { from: Tensor, to: Tensor },
    /// Normal(0, std) for the part of a parameter that starts at global `(first_row, first_col)` of `[_, global_cols]`:
    /// element values depend on (seed, parameter, global element) only. Stored: `out`.
    InitializeNormal {
        out: Tensor,
        seed: u64,
        parameter: u64,
        std: f32,
        first_row: usize,
        first_col: usize,
        global_cols: usize,
    },
    /// Adds the sum of squares of `x / loss_scale` to `sums` (I64 limbs, see [`SUM_WORDS`]); blocks of
    /// [`config::SHARD_BLOCK`] elements counted from `x`'s place `first_element` in its flat buffer are summed, rounded
    /// to fixed point and added as integers.
    SquaredSum { x: Tensor, first_element: usize, loss_scale: f32, sums: Tensor },
    /// Adds the losses of `sequences` rows-groups of `loss[T]` and the number of valid `labels[T]` to `sums` (I64
    /// limbs).
    LossSum { loss: Tensor, labels: Tensor, sequences: usize, sums: Tensor },
    /// From the step's sums: `out[4]` = gradient coefficient, global norm, mean loss, 1 if anything was not finite. The
    /// coefficient is `nominal_tokens / valid tokens / loss_scale`, times `clip / norm` where the norm exceeds `clip`;
    /// 0 without valid tokens.
    ClipCoefficient {
        norm_sums: Tensor,
        loss_sums: Tensor,
        nominal_tokens: f64,
        loss_scale: f32,
        clip_norm: Option<f32>,
        out: Tensor,
    },
    /// One AdamW update of flat slices; the gradient is first multiplied by `coefficient[0]` (device scalar). Where the
    /// layers read the parameters in another type than the updated `param`, `copy` becomes them. Stored: `copy`.
    AdamW {
        param: Tensor,
        copy: Option<Tensor>,
        grad: Tensor,
        first_moment: Tensor,
        second_moment: Tensor,
        coefficient: Tensor,
        update: AdamWUpdate,
    },
    /// Of a mixture of experts.
    Experts(ExpertOp),
    /// Balances experts.
    Balance(BalanceOp),
}

/// Maxima and sums of rows of logits over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowStatistics {
    /// `[R]`, see [`Op::RowMax`].
    pub max: Tensor,
    /// `[R,2]`, see [`Op::SumExp`].
    pub sums: Tensor,
}

/// Where the gradient over logits goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitGradient {
    /// Its factor.
    pub scale: f32,
    /// `[R,V/tp]`, assigned: the logits themselves, or another tensor. Stored: `into`.
    pub into: Tensor,
}

/// The z-loss of rows of logits: `coefficient * log_sum_exp^2`, whose gradient is that of the objective as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZLoss {
    /// Factor of the squares.
    pub coefficient: f32,
    /// `[R]`, assigned, 0 for ignored labels.
    pub losses: Tensor,
}

/// Which way a rotation turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// By the angle.
    Forward,
    /// By minus the angle: the transposed map.
    Backward,
}

/// I64 words of a fixed-point sum: limbs of 32 bits that ranks add without carries, and a count of values that were not
/// finite.
pub const SUM_WORDS: usize = 10;

/// The word of a sum that counts values that were not finite or too large.
pub const NOT_FINITE_WORD: usize = SUM_WORDS - 2;

/// The word of a sum that counts what the summing operation says: valid labels, votes.
pub const COUNT_WORD: usize = SUM_WORDS - 1;

/// An operation by what it is to those who price it.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    /// A matrix product.
    Product {
        orientation: Orientation,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        write: Write,
    },
    /// Matrix products of groups of rows, each with a matrix of its own. The tensors have as many rows as are expected,
    /// of all groups together.
    GroupedProduct {
        groups: usize,
        orientation: Orientation,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        write: Write,
    },
    /// Attention that stores no scores.
    Attention {
        operands: AttentionOperands,
    },
    AttentionBackward {
        operands: AttentionOperands,
    },
    /// Stands for these, in this order.
    Fused(Box<[Op; 2]>),
    /// Of the rows of `x`.
    Norm {
        x: Tensor,
    },
    /// Gradient of the norm's input, of the shape of `x`.
    NormBackward {
        x: Tensor,
    },
    /// Of the heads of `x`, in place.
    Rotary {
        x: Tensor,
    },
    /// With this output.
    Activation {
        y: Tensor,
    },
    /// With this gradient of the output.
    ActivationBackward {
        dy: Tensor,
    },
    /// Reads rows of a table.
    Lookup {
        out: Tensor,
    },
    /// Adds to rows of a table.
    LookupBackward {
        dy: Tensor,
        dtable: Tensor,
    },
    /// Moves data and computes little.
    Memory,
}

impl Op {
    /// The operation's name, for messages and records.
    pub fn name(&self) -> &'static str {
        match self {
            Op::MatMul { .. } => "mat_mul",
            Op::ColumnSum { .. } => "column_sum",
            Op::Norm { .. } => "norm",
            Op::NormBackwardInput { .. } => "norm_backward_input",
            Op::NormBackwardWeight { .. } => "norm_backward_weight",
            Op::RotaryTable { .. } => "rotary_table",
            Op::Rotary { .. } => "rotary",
            Op::Attention { .. } => "attention",
            Op::AttentionBackward { .. } => "attention_backward",
            Op::JoinAttention { .. } => "join_attention",
            Op::Activation { .. } => "activation",
            Op::ActivationBackward { .. } => "activation_backward",
            Op::MatMulActivation { .. } => "mat_mul_activation",
            Op::MatMulActivationBackward { .. } => "mat_mul_activation_backward",
            Op::DropoutAdd { .. } => "dropout_add",
            Op::DropoutBackward { .. } => "dropout_backward",
            Op::EmbeddingLookup { .. } => "embedding_lookup",
            Op::EmbeddingBackward { .. } => "embedding_backward",
            Op::SoftCap { .. } => "soft_cap",
            Op::SoftCapBackward { .. } => "soft_cap_backward",
            Op::RowMax { .. } => "row_max",
            Op::SumExp { .. } => "sum_exp",
            Op::CrossEntropy { .. } => "cross_entropy",
            Op::AddRounded { .. } => "add_rounded",
            Op::RoundedToSingle { .. } => "rounded_to_single",
            Op::Accumulate { .. } => "accumulate",
            Op::ScaledSum { .. } => "scaled_sum",
            Op::Fill { .. } => "fill",
            Op::Copy { .. } => "copy",
            Op::InitializeNormal { .. } => "initialize_normal",
            Op::SquaredSum { .. } => "squared_sum",
            Op::LossSum { .. } => "loss_sum",
            Op::ClipCoefficient { .. } => "clip_coefficient",
            Op::AdamW { .. } => "adamw",
            Op::Experts(op) => op.name(),
            Op::Balance(op) => op.name(),
        }
    }

    /// Its family.
    pub fn family(&self) -> Family {
        match *self {
            Op::MatMul { orientation, a, b, out, write, bias: _ } => Family::Product { orientation, a, b, out, write },
            Op::Attention { operands } => Family::Attention { operands },
            Op::AttentionBackward { operands, .. } => Family::AttentionBackward { operands },
            Op::MatMulActivation { a, b, bias, activation, x, y } => {
                let (orientation, write) = (Orientation::Nt, Write::Assign);
                let product = Op::MatMul { orientation, a, b, bias, out: x, write };
                Family::Fused(Box::new([product, Op::Activation { activation, x, y }]))
            }
            Op::MatMulActivationBackward { a, b, activation, dy, x, dx, y } => {
                let (orientation, write) = (Orientation::Nn, Write::Assign);
                let product = Op::MatMul { orientation, a, b, bias: None, out: dy, write };
                Family::Fused(Box::new([product, Op::ActivationBackward { activation, x, dy, dx, y }]))
            }
            Op::Norm { x, .. } => Family::Norm { x },
            Op::NormBackwardInput { tensors, .. } => Family::NormBackward { x: tensors.x },
            Op::Rotary { x, .. } => Family::Rotary { x },
            Op::Activation { y, .. } => Family::Activation { y },
            Op::ActivationBackward { dy, .. } => Family::ActivationBackward { dy },
            Op::EmbeddingLookup { out, .. } => Family::Lookup { out },
            Op::EmbeddingBackward { dy, dtable, .. } => Family::LookupBackward { dy, dtable },
            Op::ColumnSum { .. } | Op::NormBackwardWeight { .. } | Op::RotaryTable { .. } => Family::Memory,
            Op::JoinAttention { .. } | Op::DropoutAdd { .. } | Op::DropoutBackward { .. } => Family::Memory,
            Op::SoftCap { .. } | Op::SoftCapBackward { .. } => Family::Memory,
            Op::RowMax { .. } | Op::SumExp { .. } | Op::CrossEntropy { .. } | Op::LossSum { .. } => Family::Memory,
            Op::AddRounded { .. } | Op::RoundedToSingle { .. } | Op::SquaredSum { .. } => Family::Memory,
            Op::Accumulate { .. } | Op::ScaledSum { .. } | Op::Fill { .. } | Op::Copy { .. } => Family::Memory,
            Op::InitializeNormal { .. } | Op::ClipCoefficient { .. } | Op::AdamW { .. } => Family::Memory,
            Op::Experts(op) => op.family(),
            Op::Balance(op) => op.family(),
        }
    }

    /// The operations with whose bits a fused one is computed, in order; the operation itself where it is not fused.
    pub fn unfused(&self) -> impl Iterator<Item = Op> + use<> {
        let ops = if let Family::Fused(ops) = self.family() { ops.map(Some) } else { [Some(*self), None] };
        ops.into_iter().flatten()
    }

    /// The tensors that the operation reads and writes.
    pub fn operands(&self) -> Operands {
        match *self {
            Op::MatMul { a, b, bias, out, write, .. } => {
                Operands::new([Some(a), Some(b), bias, out_if_accumulated(out, write)], [Some(out)])
            }
            Op::ColumnSum { x, out } => Operands::new([Some(x), Some(out)], [Some(out)]),
            Op::Norm { x, weight, bias, y, stats, .. } => {
                Operands::new([Some(x), Some(weight), bias], [Some(y), Some(stats)])
            }
            Op::NormBackwardInput { tensors: t, write } => Operands::new(
                [Some(t.x), Some(t.weight), Some(t.stats), Some(t.dy), out_if_accumulated(t.dx, write)],
                [Some(t.dx)],
            ),
            Op::NormBackwardWeight { x, stats, dy, dweight, dbias, .. } => {
                Operands::new([Some(x), Some(stats), Some(dy), Some(dweight), dbias], [Some(dweight), dbias])
            }
            Op::RotaryTable { cos, sin, .. } => Operands::new([], [Some(cos), Some(sin)]),
            Op::Rotary { x, positions, cos, sin, .. } => {
                Operands::new([Some(x), Some(positions), Some(cos), Some(sin)], [Some(x)])
            }
            Op::Attention { operands: o } => {
                Operands::new([o.q, o.k, o.v, o.visible].map(Some), [o.out, o.log_sum_exp].map(Some))
            }
            Op::AttentionBackward { operands: o, gradients: g } => Operands::new(
                [o.q, o.k, o.v, o.visible, o.out, o.log_sum_exp, g.dout].map(Some),
                [g.dq, g.dk, g.dv, g.key_sums].map(Some),
            ),
            Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, write, .. } => {
                let [read, statistics] = [out, log_sum_exp].map(|tensor| out_if_accumulated(tensor, write));
                Operands::new([Some(part), Some(part_log_sum_exp), read, statistics], [out, log_sum_exp].map(Some))
            }
            Op::Activation { x, y, .. } => Operands::new([Some(x)], [Some(y)]),
            Op::ActivationBackward { x, dy, dx, y, .. } => Operands::new([Some(x), Some(dy)], [Some(dx), Some(y)]),
            Op::MatMulActivation { a, b, bias, x, y, .. } => Operands::new([Some(a), Some(b), bias], [x, y].map(Some)),
            Op::MatMulActivationBackward { a, b, dy, x, dx, y, .. } => {
                Operands::new([a, b, x].map(Some), [dy, dx, y].map(Some))
            }
            Op::DropoutAdd { x, bias, residual, out, .. } => Operands::new([Some(x), bias, residual], [Some(out)]),
            Op::DropoutBackward { dy, dx, .. } => Operands::new([Some(dy)], [Some(dx)]),
            Op::EmbeddingLookup { tokens, out, write, .. } => {
                Operands::new([Some(tokens), out_if_accumulated(out, write)], [Some(out)])
            }
            Op::EmbeddingBackward { tokens, dy, dtable, .. } => {
                Operands::new([Some(tokens), Some(dy), Some(dtable)], [Some(dtable)])
            }
            Op::SoftCap { x, .. } => Operands::new([Some(x)], [Some(x)]),
            Op::SoftCapBackward { y, gradient, .. } => Operands::new([Some(y), Some(gradient)], [Some(gradient)]),
            Op::RowMax { logits, out, .. } => Operands::new([Some(logits)], [Some(out)]),
            Op::SumExp { logits, max, labels, sums, .. } => {
                Operands::new([Some(logits), Some(max), Some(labels)], [Some(sums)])
            }
            Op::CrossEntropy { logits, statistics, labels, loss, gradient, z_loss, .. } => Operands::new(
                [Some(logits), statistics.map(|rows| rows.max), statistics.map(|rows| rows.sums), Some(labels)],
                [Some(loss), gradient.map(|gradient| gradient.into), z_loss.map(|z_loss| z_loss.losses)],
            ),
            Op::AddRounded { x, into, write, refusals, .. } => {
                Operands::new([Some(x), Some(refusals), out_if_accumulated(into, write)], [Some(into), Some(refusals)])
            }
            Op::RoundedToSingle { sums, .. } => Operands::new([Some(sums)], [Some(sums)]),
            Op::Accumulate { x, into } => Operands::new([Some(x), Some(into)], [Some(into)]),
            Op::ScaledSum { x, into, keep, .. } => {
                Operands::new([Some(x), (keep != 0.0).then_some(into)], [Some(into)])
            }
            Op::Fill { out, .. } | Op::InitializeNormal { out, .. } => Operands::new([], [Some(out)]),
            Op::Copy { from, to } => Operands::new([Some(from)], [Some(to)]),
            Op::SquaredSum { x, sums, .. } => Operands::new([Some(x), Some(sums)], [Some(sums)]),
            Op::LossSum { loss, labels, sums, .. } => {
                Operands::new([Some(loss), Some(labels), Some(sums)], [Some(sums)])
            }
            Op::ClipCoefficient { norm_sums, loss_sums, out, .. } => {
                Operands::new([Some(norm_sums), Some(loss_sums)], [Some(out)])
            }
            Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, .. } => Operands::new(
                [Some(param), Some(grad), Some(first_moment), Some(second_moment), Some(coefficient)],
                [Some(param), copy, Some(first_moment), Some(second_moment)],
            ),
            Op::Experts(op) => op.operands(),
            Op::Balance(op) => op.operands(),
        }
    }
}

pub(crate) fn out_if_accumulated(out: Tensor, write: Write) -> Option<Tensor> {
    match write {
        Write::Assign => None,
        Write::Accumulate => Some(out),
    }
}
