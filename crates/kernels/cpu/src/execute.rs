//! From an operation to its kernel: the one match over `Op` of this device.

use config::Products;
use device::{
    AttentionGradients, AttentionOperands, Bf16, DeviceError, Dtype, Element, F16, LogitGradient, NOT_FINITE_WORD, Op,
    RowStatistics, SUM_WORDS, Tensor, ZLoss,
};

use crate::accumulate::{Accumulate, add_integers};
use crate::activation::{ActivationBackward, ActivationForward};
use crate::adamw::AdamW;
use crate::attention::{
    self, Attention, JoinAttention, attention_backward, attention_backward_blocks, attention_backward_pairs,
    attention_forward, attention_forward_blocks, attention_forward_pairs,
};
use crate::clip_coefficient::{Factors, clip_coefficient};
use crate::column_sum::ColumnSum;
use crate::copy::Copy;
use crate::cross_entropy::{CrossEntropy, Logits, RowMax, SumExp, ZLosses};
use crate::dropout::{DropoutAdd, DropoutBackward, Source};
use crate::embedding::{EmbeddingBackward, EmbeddingLookup};
use crate::fill::fill;
use crate::gemm::pairs::multiply_alone;
use crate::gemm::{BlockRule, BlocksProduct, Narrow, PackingBuffers, Product, Write, gemm, gemm_blocks, gemm_rounded};
use crate::initialize::InitializeNormal;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Kernel, run};
use crate::loss_sum::loss_sum;
use crate::meter::Meter;
use crate::norm::{NormBackwardInput, NormBackwardWeight, NormForward};
use crate::parts::losses_of;
use crate::rotary::{Rotary, RotaryTable};
use crate::rounded_sum::{AddRounded, RoundedToSingle};
use crate::scaled_sum::ScaledSum;
use crate::soft_cap::{SoftCap, SoftCapBackward};
use crate::squared_sum::SquaredSum;
use crate::task::PairsMatMul;
use crate::view::{MatMut, MatRef};
use crate::worker::Worker;

/// `stored!(E of tensor => ..)`: the expression with `E` as the type of real numbers that the tensor holds.
macro_rules! stored {
    ($element:ident of $tensor:expr => $body:expr) => {
        match $tensor.dtype {
            Dtype::F32 => {
                type $element = f32;
                $body
            }
            Dtype::Bf16 => {
                type $element = Bf16;
                $body
            }
            Dtype::F16 => {
                type $element = F16;
                $body
            }
            Dtype::I32 | Dtype::I64 => return Err($tensor.not_real()),
        }
    };
}

pub(crate) use stored;

/// Multiplies: `c` is assigned or accumulated the product `P`, plus a bias.
type ProductKernel<P, E> = fn(P, MatMut<'_, E>, Write, Option<&[E]>, &mut PackingBuffers, InstructionSet, &Meter);

impl Worker {
    /// Runs `op` to its end. One exhaustive match: what an operation means on this device is read here, line by line.
    pub(crate) fn execute(&self, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::MatMul { orientation, a, b, bias, out, write } => {
                if let Some(product) = PairsMatMul::of(op, self.products) {
                    let factors = self.factors(&product)?;
                    return stored!(E of out => self.multiply(multiply_alone::<E>, factors, write, bias, out));
                }
                let product = Product { orientation, a: self.operand(a)?, b: self.operand(b)? };
                if let Some(rule) = BlockRule::of(self.products) {
                    let product = BlocksProduct { factors: product, narrow: narrow_of([a, b])?, rule };
                    return stored!(E of out => self.multiply(gemm_blocks::<E>, product, write, bias, out));
                }
                match out.dtype {
                    Dtype::F32 => self.multiply(gemm, product, write, bias, out)?,
                    Dtype::Bf16 => self.multiply(gemm_rounded::<Bf16>, product, write, bias, out)?,
                    Dtype::F16 => self.multiply(gemm_rounded::<F16>, product, write, bias, out)?,
                    Dtype::I32 | Dtype::I64 => return Err(out.not_real()),
                }
            }
            Op::ColumnSum { x, out } => stored!(E of x => {
                self.run(ColumnSum { x: self.matrix::<E>(x)?, out: self.reals_mut(out)? });
            }),
            Op::Norm { norm, x, weight, bias, y, stats } => stored!(E of x => {
                let (x, y, stats) = (self.matrix::<E>(x)?, self.matrix_mut(y)?, self.reals_mut(stats)?);
                let (weight, bias) = (self.reals(weight)?, self.optional_reals(bias)?);
                self.run(NormForward { norm, x, weight, bias, y, stats });
            }),
            Op::NormBackwardInput { tensors: t, write } => stored!(E of t.x => self.run(NormBackwardInput {
                norm: t.norm,
                x: self.matrix::<E>(t.x)?,
                weight: self.reals(t.weight)?,
                stats: self.reals(t.stats)?,
                dy: self.matrix(t.dy)?,
                dx: self.matrix_mut(t.dx)?,
                write,
            })),
            Op::NormBackwardWeight { norm: _, x, stats, dy, dweight, dbias } => stored!(E of x => {
                let (x, stats, dy) = (self.matrix::<E>(x)?, self.reals(stats)?, self.matrix(dy)?);
                let dbias = dbias.map(|tensor| self.reals_mut(tensor)).transpose()?;
                self.run(NormBackwardWeight { x, stats, dy, dweight: self.reals_mut(dweight)?, dbias });
            }),
            Op::RotaryTable { cos, sin, base, scaling } => {
                self.run(RotaryTable { cos: self.matrix_mut(cos)?, sin: self.matrix_mut(sin)?, base, scaling });
            }
            Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction } => stored!(E of x => {
                let (x, positions) = (self.matrix_mut::<E>(x)?, self.ints(positions)?);
                let (cos, sin) = (self.matrix(cos)?, self.matrix(sin)?);
                self.run(Rotary { x, head_dim, positions, cos, sin, pairing, direction });
            }),
            Op::Attention { operands: o } if self.is_in_pairs(o.q) => {
                let (attention, tensors) = (Attention::of(&o, self.ints(o.visible)?), self.attention_tensors(&o)?);
                let mut packing = self.packing.borrow_mut();
                attention_forward_pairs(&attention, tensors, &mut packing, self.instruction_set, &self.meter);
            }
            Op::Attention { operands: o } => stored!(E of o.q => {
                let (attention, tensors) = (Attention::of(&o, self.ints(o.visible)?), self.attention_tensors::<E>(&o)?);
                match self.rule_of(o.q) {
                    Some(rule) => {
                        let (mut packing, set) = (self.packing.borrow_mut(), self.instruction_set);
                        attention_forward_blocks(&attention, tensors, rule, &mut packing, set, &self.meter);
                    }
                    None => {
                        let mut buffers = self.attention.borrow_mut();
                        attention_forward(&attention, tensors, &mut buffers, self.instruction_set, &self.meter);
                    }
                }
            }),
            Op::AttentionBackward { operands: o, gradients: g } if self.is_in_pairs(o.q) => {
                let attention = Attention::of(&o, self.ints(o.visible)?);
                let (tensors, mut packing) = (self.attention_gradients(&o, &g)?, self.packing.borrow_mut());
                attention_backward_pairs(&attention, tensors, &mut packing, self.instruction_set, &self.meter);
            }
            Op::AttentionBackward { operands: o, gradients: g } => stored!(E of o.q => {
                let attention = Attention::of(&o, self.ints(o.visible)?);
                let tensors = self.attention_gradients::<E>(&o, &g)?;
                match self.rule_of(o.q) {
                    Some(rule) => {
                        let (mut packing, set) = (self.packing.borrow_mut(), self.instruction_set);
                        attention_backward_blocks(&attention, tensors, rule, &mut packing, set, &self.meter);
                    }
                    None => {
                        let mut buffers = self.attention.borrow_mut();
                        attention_backward(&attention, tensors, &mut buffers, self.instruction_set, &self.meter);
                    }
                }
            }),
            Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write } => stored!(E of part => {
                let (part, part_log_sum_exp) = (self.matrix::<E>(part)?, self.matrix(part_log_sum_exp)?);
                let (out, log_sum_exp) = (self.matrix_mut(out)?, self.matrix_mut(log_sum_exp)?);
                self.run(JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write });
            }),
            Op::Activation { activation, x, y } => stored!(E of x => {
                self.run(ActivationForward { activation, x: self.matrix::<E>(x)?, y: self.matrix_mut(y)? });
            }),
            Op::ActivationBackward { activation, x, dy, dx, y } => stored!(E of x => {
                let (x, dy) = (self.matrix::<E>(x)?, self.matrix(dy)?);
                self.run(ActivationBackward { activation, x, dy, dx: self.matrix_mut(dx)?, y: self.matrix_mut(y)? });
            }),
            Op::MatMulActivation { .. } | Op::MatMulActivationBackward { .. } => {
                op.unfused().try_for_each(|op| self.execute(&op))?;
            }
            Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out } => stored!(E of out => {
                let (x, bias) = (self.source::<E>(x, out)?, self.optional_reals(bias)?);
                let residual = residual.map(|tensor| self.source(tensor, out)).transpose()?;
                self.run(DropoutAdd { x, bias, residual, residual_scale, dropout, out: self.matrix_mut(out)? });
            }),
            Op::DropoutBackward { dy, dropout, dx } => stored!(E of dx => {
                self.run(DropoutBackward { dy: self.source::<E>(dy, dx)?, dropout, dx: self.matrix_mut(dx)? });
            }),
            Op::EmbeddingLookup { tokens, table, first_row, out, write } => stored!(E of table => {
                let (tokens, table, out) = (self.ints(tokens)?, self.matrix::<E>(table)?, self.matrix_mut(out)?);
                self.run(EmbeddingLookup { tokens, table, first_row, out, write });
            }),
            Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable } => stored!(E of dy => {
                let (tokens, dy, dtable) = (self.ints(tokens)?, self.matrix::<E>(dy)?, self.matrix_mut(dtable)?);
                self.run(EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable });
            }),
            Op::SoftCap { x, cap } => self.run(SoftCap { x: self.matrix_mut(x)?, cap }),
            Op::SoftCapBackward { y, cap, gradient } => {
                self.run(SoftCapBackward { y: self.matrix(y)?, cap, gradient: self.matrix_mut(gradient)? });
            }
            Op::RowMax { logits, valid_columns, out } => {
                self.run(RowMax { logits: self.matrix(logits)?, valid_columns, out: self.reals_mut(out)? });
            }
            Op::SumExp { logits, valid_columns, max, labels, first_row, sums } => {
                let (logits, max, labels) = (self.matrix(logits)?, self.reals(max)?, self.ints(labels)?);
                let sums = self.reals_mut(sums)?;
                self.run(SumExp { logits, valid_columns, max, labels, first_column: first_row, sums });
            }
            Op::CrossEntropy { statistics: Some(RowStatistics { max, sums }), .. } => {
                self.cross_entropy(op, self.reals(max)?, self.reals(sums)?)?;
            }
            Op::CrossEntropy { statistics: None, .. } => self.whole_rows(op)?,
            Op::AddRounded { x, rounding, into, write, refusals } => {
                let kernel = AddRounded { x: self.reals(x)?, rounding, into: self.longs_mut(into)?, write };
                let mut words = [0; SUM_WORDS];
                words[NOT_FINITE_WORD] = run(self.instruction_set, kernel);
                self.add_to_sum(refusals, &words)?;
            }
            Op::RoundedToSingle { sums, unit } => self.run(RoundedToSingle { sums: self.longs_mut(sums)?, unit }),
            Op::Accumulate { x, into } if into.dtype == Dtype::I64 => {
                add_integers(self.longs(x)?, self.longs_mut(into)?)
            }
            Op::Accumulate { x, into } => self.run(Accumulate { x: self.matrix(x)?, into: self.matrix_mut(into)? }),
            Op::ScaledSum { x, factor, into, keep } => {
                self.run(ScaledSum { x: self.matrix(x)?, factor, into: self.matrix_mut(into)?, keep });
            }
            Op::Fill { out, value } if out.dtype == Dtype::I64 => self.longs_mut(out)?.fill(value as i64),
            Op::Fill { out, value } => stored!(E of out => fill(self.matrix_mut::<E>(out)?, value)),
            Op::Copy { from, to } if from.dtype == Dtype::I32 => self.ints_mut(to)?.copy_from_slice(self.ints(from)?),
            Op::Copy { from, to } if from.dtype == Dtype::I64 => self.longs_mut(to)?.copy_from_slice(self.longs(from)?),
            Op::Copy { from, to } => stored!(F of from => stored!(T of to => {
                self.run(Copy { from: self.matrix::<F>(from)?, to: self.matrix_mut::<T>(to)? });
            })),
            Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols } => {
                stored!(E of out => {
                    let out = self.matrix_mut::<E>(out)?;
                    self.run(InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols });
                });
            }
            Op::SquaredSum { x, first_element, loss_scale, sums } => {
                let mut words = [0; SUM_WORDS];
                self.run(SquaredSum { x: self.reals(x)?, first_element, loss_scale, sums: &mut words });
                self.add_to_sum(sums, &words)?;
            }
            Op::LossSum { loss, labels, sequences, sums } => {
                loss_sum(self.reals(loss)?, self.ints(labels)?, sequences, self.longs_mut(sums)?);
            }
            Op::ClipCoefficient { norm_sums, loss_sums, nominal_tokens, loss_scale, clip_norm, out } => {
                let sums = (self.longs_mut(norm_sums)?, self.longs_mut(loss_sums)?);
                let step = clip_coefficient(sums.0, sums.1, Factors { nominal_tokens, loss_scale, clip_norm });
                let not_finite = if step.all_finite { 0.0 } else { 1.0 };
                self.reals_mut(out)?.copy_from_slice(&[step.coefficient, step.norm, step.mean_loss, not_finite]);
            }
            Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update } => {
                stored!(E of copy.unwrap_or(param) => self.run(AdamW {
                    param: self.reals_mut(param)?,
                    copy: copy.map(|tensor| self.reals_mut::<E>(tensor)).transpose()?,
                    grad: self.reals(grad)?,
                    first_moment: self.reals_mut(first_moment)?,
                    second_moment: self.reals_mut(second_moment)?,
                    coefficient: self.reals::<f32>(coefficient)?[0],
                    update,
                }));
            }
            Op::Experts(op) => self.execute_experts(&op)?,
            Op::Balance(op) => self.execute_balance(&op)?,
        }
        Ok(())
    }

    pub(crate) fn run<K: Kernel<Output = ()>>(&self, kernel: K) {
        run(self.instruction_set, kernel);
    }

    /// A product by the kernel for its order and for the type that it is stored in.
    fn multiply<P, E: Element>(
        &self,
        kernel: ProductKernel<P, E>,
        product: P,
        write: Write,
        bias: Option<Tensor>,
        out: Tensor,
    ) -> Result<(), DeviceError> {
        let (bias, out) = (self.optional_reals(bias)?, self.matrix_mut(out)?);
        let mut packing = self.packing.borrow_mut();
        kernel(product, out, write, bias, &mut packing, self.instruction_set, &self.meter);
        Ok(())
    }

    /// Whether attention that reads `queries` multiplies in AMX order.
    fn is_in_pairs(&self, queries: Tensor) -> bool {
        self.products == Products::Pairs && queries.dtype == Dtype::Bf16
    }

    /// How attention that reads `queries` adds blocks of products, if it does.
    fn rule_of(&self, queries: Tensor) -> Option<BlockRule> {
        Narrow::of([queries.dtype; 2]).and_then(|_| BlockRule::of(self.products))
    }

    fn attention_tensors<E: Element>(&self, o: &AttentionOperands) -> Result<attention::Forward<'_, E>, DeviceError> {
        Ok(attention::Forward {
            q: self.matrix(o.q)?,
            k: self.matrix(o.k)?,
            v: self.matrix(o.v)?,
            out: self.matrix_mut(o.out)?,
            log_sum_exp: self.matrix_mut(o.log_sum_exp)?,
        })
    }

    fn attention_gradients<E: Element>(
        &self,
        o: &AttentionOperands,
        g: &AttentionGradients,
    ) -> Result<attention::Backward<'_, E>, DeviceError> {
        Ok(attention::Backward {
            q: self.matrix(o.q)?,
            k: self.matrix(o.k)?,
            v: self.matrix(o.v)?,
            out: self.matrix(o.out)?,
            log_sum_exp: self.matrix(o.log_sum_exp)?,
            dout: self.matrix(g.dout)?,
            dq: self.matrix_mut(g.dq)?,
            dk: self.matrix_mut(g.dk)?,
            dv: self.matrix_mut(g.dv)?,
            key_sums: self.matrix_mut(g.key_sums)?,
        })
    }

    /// Losses of rows with the whole vocabulary: all steps of a row before the next one, while it is in caches.
    fn whole_rows(&self, op: &Op) -> Result<(), DeviceError> {
        let Op::CrossEntropy { logits, valid_columns, labels, first_row, .. } = *op else { return Err(not_a_loss(op)) };
        for row in 0..logits.rows {
            let (mut max, mut sums) = ([0.0], [0.0; 2]);
            let (of_row, label) = (logits.rows_of(row..row + 1), self.ints(labels.elements(row..row + 1))?);
            self.run(RowMax { logits: self.matrix(of_row)?, valid_columns, out: &mut max });
            let (logits, first_column) = (self.matrix(of_row)?, first_row);
            self.run(SumExp { logits, valid_columns, max: &max, labels: label, first_column, sums: &mut sums });
            self.cross_entropy(&losses_of(op, row..row + 1), &max, &sums)?;
        }
        Ok(())
    }

    /// Losses and gradients of rows whose maxima and sums are known.
    fn cross_entropy(&self, op: &Op, max: &[f32], sums: &[f32]) -> Result<(), DeviceError> {
        let Op::CrossEntropy { logits, valid_columns, statistics: _, labels, first_row, gradient, loss, z_loss } = *op
        else {
            return Err(not_a_loss(op));
        };
        let losses: CrossEntropy<'_> = CrossEntropy {
            logits: Logits::Kept { rows: logits.rows },
            valid_columns,
            max,
            sums,
            labels: self.ints(labels)?,
            first_column: first_row,
            loss: self.reals_mut(loss)?,
            z_loss: self.z_losses(z_loss)?,
        };
        match gradient {
            None => self.run(losses),
            Some(LogitGradient { scale, into }) if into == logits => {
                self.run(losses.over::<f32>(Logits::Replaced { logits: self.matrix_mut(logits)?, scale }));
            }
            Some(LogitGradient { scale, into }) => stored!(E of into => {
                let (logits, gradient) = (self.matrix(logits)?, self.matrix_mut::<E>(into)?);
                self.run(losses.over(Logits::Read { logits, scale, gradient }));
            }),
        }
        Ok(())
    }

    fn z_losses(&self, z_loss: Option<ZLoss>) -> Result<Option<ZLosses<'_>>, DeviceError> {
        let of = |ZLoss { coefficient, losses }| Ok(ZLosses { coefficient, losses: self.reals_mut(losses)? });
        z_loss.map(of).transpose()
    }

    fn optional_reals<E: Element>(&self, tensor: Option<Tensor>) -> Result<Option<&[E]>, DeviceError> {
        tensor.map(|tensor| self.reals(tensor)).transpose()
    }

    /// An input that may be the output's own place.
    fn source<E: Element>(&self, input: Tensor, out: Tensor) -> Result<Source<MatRef<'_, E>>, DeviceError> {
        Ok(if input == out { Source::Out } else { Source::Apart(self.matrix(input)?) })
    }
}

/// The narrow type of a product in blocks.
fn narrow_of(factors: [Tensor; 2]) -> Result<Narrow, DeviceError> {
    Narrow::of(factors.map(|factor| factor.dtype)).ok_or_else(|| {
        let what = format!("{factors:?} must have one narrow type to be multiplied in blocks");
        DeviceError::Shape { op: "matrix", what }
    })
}

fn not_a_loss(op: &Op) -> DeviceError {
    DeviceError::Shape { op: op.name(), what: format!("{op:?} is not a loss") }
}
