//! From an operation to its kernel: the one match over `Op` of this device.

use device::{DeviceError, Op, Orientation, Tensor};

use crate::accumulate::Accumulate;
use crate::activation::{ActivationBackward, ActivationForward};
use crate::adamw::AdamW;
use crate::attention::{self, Attention, attention_backward, attention_forward};
use crate::clip_coefficient::clip_coefficient;
use crate::column_sum::ColumnSum;
use crate::copy::copy;
use crate::cross_entropy::{CrossEntropy, RowMax, SumExp};
use crate::device::CpuDevice;
use crate::dropout::{DropoutAdd, DropoutBackward, Source};
use crate::embedding::{EmbeddingBackward, EmbeddingLookup};
use crate::fill::fill;
use crate::gemm::{Product, gemm};
use crate::initialize::InitializeNormal;
use crate::lanes::{Kernel, run};
use crate::loss_sum::loss_sum;
use crate::norm::{NormBackwardInput, NormBackwardWeight, NormForward};
use crate::rotary::{Rotary, RotaryTable};
use crate::squared_sum::SquaredSum;
use crate::view::MatRef;

impl CpuDevice {
    /// Runs `op` to its end. One exhaustive match: what an operation means on this device is read here, line by line.
    pub(crate) fn execute(&self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::MatMul { orientation, a, b, bias, out, write } => {
                let (a, b) = (self.matrix(a)?, self.matrix(b)?);
                let product = match orientation {
                    Orientation::Nt => Product::nt(a, b),
                    Orientation::Nn => Product::nn(a, b),
                    Orientation::Tn => Product::tn(a, b),
                };
                let (bias, out) = (self.optional_floats(bias)?, self.matrix_mut(out)?);
                let mut packing = self.packing.borrow_mut();
                gemm(product, out, write, bias, &mut packing, self.instruction_set, &self.meter);
            }
            Op::ColumnSum { x, out } => self.run(ColumnSum { x: self.matrix(x)?, out: self.floats_mut(out)? }),
            Op::Norm { norm, x, weight, bias, y, stats } => {
                let (x, y, stats) = (self.matrix(x)?, self.matrix_mut(y)?, self.floats_mut(stats)?);
                let (weight, bias) = (self.floats(weight)?, self.optional_floats(bias)?);
                self.run(NormForward { norm, x, weight, bias, y, stats });
            }
            Op::NormBackwardInput { tensors: t, write } => self.run(NormBackwardInput {
                norm: t.norm,
                x: self.matrix(t.x)?,
                weight: self.floats(t.weight)?,
                stats: self.floats(t.stats)?,
                dy: self.matrix(t.dy)?,
                dx: self.matrix_mut(t.dx)?,
                write,
            }),
            Op::NormBackwardWeight { norm: _, x, stats, dy, dweight, dbias } => {
                let (x, stats, dy) = (self.matrix(x)?, self.floats(stats)?, self.matrix(dy)?);
                let dbias = dbias.map(|tensor| self.floats_mut(tensor)).transpose()?;
                self.run(NormBackwardWeight { x, stats, dy, dweight: self.floats_mut(dweight)?, dbias });
            }
            Op::RotaryTable { cos, sin, base } => {
                self.run(RotaryTable { cos: self.matrix_mut(cos)?, sin: self.matrix_mut(sin)?, base });
            }
            Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction } => {
                let (x, positions) = (self.matrix_mut(x)?, self.ints(positions)?);
                let (cos, sin) = (self.matrix(cos)?, self.matrix(sin)?);
                self.run(Rotary { x, head_dim, positions, cos, sin, pairing, direction });
            }
            Op::Attention { shape, q, k, v, visible, scale, dropout, out, log_sum_exp } => {
                let visible = bytemuck::cast_slice(self.ints(visible)?);
                let (q, k, v) = (self.matrix(q)?, self.matrix(k)?, self.matrix(v)?);
                let (out, log_sum_exp) = (self.matrix_mut(out)?, self.floats_mut(log_sum_exp)?);
                let tensors = attention::Forward { q, k, v, out, log_sum_exp };
                let attention = Attention { shape, visible, scale, dropout };
                let mut buffers = self.attention.borrow_mut();
                attention_forward(&attention, tensors, &mut buffers, self.instruction_set, &self.meter);
            }
            Op::AttentionBackward { shape, q, k, v, visible, scale, dropout, out, log_sum_exp, dout, dq, dk, dv } => {
                let visible = bytemuck::cast_slice(self.ints(visible)?);
                let tensors = attention::Backward {
                    q: self.matrix(q)?,
                    k: self.matrix(k)?,
                    v: self.matrix(v)?,
                    out: self.matrix(out)?,
                    log_sum_exp: self.floats(log_sum_exp)?,
                    dout: self.matrix(dout)?,
                    dq: self.matrix_mut(dq)?,
                    dk: self.matrix_mut(dk)?,
                    dv: self.matrix_mut(dv)?,
                };
                let attention = Attention { shape, visible, scale, dropout };
                let mut buffers = self.attention.borrow_mut();
                attention_backward(&attention, tensors, &mut buffers, self.instruction_set, &self.meter);
            }
            Op::Activation { activation, x, y } => {
                self.run(ActivationForward { activation, x: self.matrix(x)?, y: self.matrix_mut(y)? });
            }
            Op::ActivationBackward { activation, x, dy, dx, y } => {
                let (x, dy) = (self.matrix(x)?, self.matrix(dy)?);
                self.run(ActivationBackward { activation, x, dy, dx: self.matrix_mut(dx)?, y: self.matrix_mut(y)? });
            }
            Op::DropoutAdd { x, bias, residual, dropout, out } => {
                let (x, bias) = (self.source(x, out)?, self.optional_floats(bias)?);
                let residual = residual.map(|tensor| self.source(tensor, out)).transpose()?;
                self.run(DropoutAdd { x, bias, residual, dropout, out: self.matrix_mut(out)? });
            }
            Op::DropoutBackward { dy, dropout, dx } => {
                self.run(DropoutBackward { dy: self.source(dy, dx)?, dropout, dx: self.matrix_mut(dx)? });
            }
            Op::EmbeddingLookup { tokens, table, first_row, out, write } => {
                let (tokens, table, out) = (self.ints(tokens)?, self.matrix(table)?, self.matrix_mut(out)?);
                self.run(EmbeddingLookup { tokens, table, first_row, out, write });
            }
            Op::EmbeddingBackward { tokens, dy, first_row, dtable } => {
                let (tokens, dy, dtable) = (self.ints(tokens)?, self.matrix(dy)?, self.matrix_mut(dtable)?);
                self.run(EmbeddingBackward { tokens, dy, first_row, dtable });
            }
            Op::RowMax { logits, valid_columns, out } => {
                self.run(RowMax { logits: self.matrix(logits)?, valid_columns, out: self.floats_mut(out)? });
            }
            Op::SumExp { logits, valid_columns, max, labels, first_row, sums } => {
                let (logits, max, labels) = (self.matrix(logits)?, self.floats(max)?, self.ints(labels)?);
                let sums = self.floats_mut(sums)?;
                self.run(SumExp { logits, valid_columns, max, labels, first_column: first_row, sums });
            }
            Op::CrossEntropy { logits, valid_columns, max, sums, labels, first_row, gradient_scale, loss } => {
                self.run(CrossEntropy {
                    logits: self.matrix_mut(logits)?,
                    valid_columns,
                    max: self.floats(max)?,
                    sums: self.floats(sums)?,
                    labels: self.ints(labels)?,
                    first_column: first_row,
                    gradient_scale,
                    loss: self.floats_mut(loss)?,
                });
            }
            Op::Accumulate { x, into } => self.run(Accumulate { x: self.matrix(x)?, into: self.matrix_mut(into)? }),
            Op::Fill { out, value } => fill(self.matrix_mut(out)?, value),
            Op::Copy { from, to } => copy(self.matrix(from)?, self.matrix_mut(to)?),
            Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols } => {
                let out = self.matrix_mut(out)?;
                self.run(InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols });
            }
            Op::SquaredSum { x, first_element, sums } => {
                self.run(SquaredSum { x: self.floats(x)?, first_element, sums: self.longs_mut(sums)? });
            }
            Op::LossSum { loss, labels, sequences, sums } => {
                loss_sum(self.floats(loss)?, self.ints(labels)?, sequences, self.longs_mut(sums)?);
            }
            Op::ClipCoefficient { norm_sums, loss_sums, nominal_tokens, clip_norm, out } => {
                let sums = (self.longs_mut(norm_sums)?, self.longs_mut(loss_sums)?);
                let step = clip_coefficient(sums.0, sums.1, nominal_tokens, clip_norm);
                let not_finite = if step.all_finite { 0.0 } else { 1.0 };
                self.floats_mut(out)?.copy_from_slice(&[step.coefficient, step.norm, step.mean_loss, not_finite]);
            }
            Op::AdamW { param, grad, first_moment, second_moment, coefficient, update } => self.run(AdamW {
                param: self.floats_mut(param)?,
                grad: self.floats(grad)?,
                first_moment: self.floats_mut(first_moment)?,
                second_moment: self.floats_mut(second_moment)?,
                coefficient: self.floats(coefficient)?[0],
                update,
            }),
        }
        Ok(())
    }

    fn run<K: Kernel<Output = ()>>(&self, kernel: K) {
        run(self.instruction_set, kernel);
    }

    fn optional_floats(&self, tensor: Option<Tensor>) -> Result<Option<&[f32]>, DeviceError> {
        tensor.map(|tensor| self.floats(tensor)).transpose()
    }

    /// An input that may be the output's own place.
    fn source(&self, input: Tensor, out: Tensor) -> Result<Source<MatRef<'_>>, DeviceError> {
        Ok(if input == out { Source::Out } else { Source::Apart(self.matrix(input)?) })
    }
}
