//! The cost of an operation: multiply-adds of its matrix products and bytes that it moves.

use crate::Tensor;
use crate::op::{Op, Orientation};

/// See the fields. The kernels count the same multiply-adds in their own loops; a test holds the two equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-adds of matrix products and attention; one is two floating-point operations.
    pub multiply_adds: u64,
    /// Bytes of all tensors read and written, each once.
    pub moved_bytes: u64,
}

/// The tensors of an operation. A tensor that is read and written is in both lists.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Operands {
    reads: [Option<Tensor>; 8],
    writes: [Option<Tensor>; 4],
}

impl Operands {
    /// Tensors that the operation reads.
    pub fn reads(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.reads.iter().flatten().copied()
    }

    /// Tensors that the operation writes, or may use as it likes.
    pub fn writes(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.writes.iter().flatten().copied()
    }

    fn new<const R: usize, const W: usize>(reads: [Option<Tensor>; R], writes: [Option<Tensor>; W]) -> Operands {
        let mut operands = Operands::default();
        operands.reads[..R].copy_from_slice(&reads);
        operands.writes[..W].copy_from_slice(&writes);
        operands
    }
}

impl Op {
    /// Multiply-adds and bytes. Attention counts the pairs of a causal mask and its windows; documents need fewer.
    pub fn cost(&self) -> Cost {
        let operands = self.operands();
        let moved_bytes = operands.reads().chain(operands.writes()).map(|tensor| tensor.size_bytes() as u64).sum();
        Cost { multiply_adds: self.multiply_adds(), moved_bytes }
    }

    fn multiply_adds(&self) -> u64 {
        match self {
            Op::MatMul { orientation, a, out, .. } => {
                let depth = match orientation {
                    Orientation::Nt | Orientation::Nn => a.cols,
                    Orientation::Tn => a.rows,
                };
                depth as u64 * out.len() as u64
            }
            Op::Attention { operands } => 2 * operands.causal_multiply_adds(),
            Op::AttentionBackward { operands, .. } => 5 * operands.causal_multiply_adds(),
            Op::MatMulActivation { .. } | Op::MatMulActivationBackward { .. } => {
                self.unfused().map(|op| op.multiply_adds()).sum()
            }
            Op::ColumnSum { .. }
            | Op::Norm { .. }
            | Op::NormBackwardInput { .. }
            | Op::NormBackwardWeight { .. }
            | Op::RotaryTable { .. }
            | Op::Rotary { .. }
            | Op::JoinAttention { .. }
            | Op::Activation { .. }
            | Op::ActivationBackward { .. }
            | Op::DropoutAdd { .. }
            | Op::DropoutBackward { .. }
            | Op::EmbeddingLookup { .. }
            | Op::EmbeddingBackward { .. }
            | Op::SoftCap { .. }
            | Op::SoftCapBackward { .. }
            | Op::RowMax { .. }
            | Op::SumExp { .. }
            | Op::CrossEntropy { .. }
            | Op::AddRounded { .. }
            | Op::RoundedToSingle { .. }
            | Op::Accumulate { .. }
            | Op::ScaledSum { .. }
            | Op::Fill { .. }
            | Op::Copy { .. }
            | Op::InitializeNormal { .. }
            | Op::SquaredSum { .. }
            | Op::LossSum { .. }
            | Op::ClipCoefficient { .. }
            | Op::AdamW { .. } => 0,
        }
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
            Op::Fill { out, .. } => Operands::new([], [Some(out)]),
            Op::Copy { from, to } => Operands::new([Some(from)], [Some(to)]),
            Op::InitializeNormal { out, .. } => Operands::new([], [Some(out)]),
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
        }
    }
}

fn out_if_accumulated(out: Tensor, write: crate::Write) -> Option<Tensor> {
    match write {
        crate::Write::Assign => None,
        crate::Write::Accumulate => Some(out),
    }
}
