//! Norms over the residual stream: parameters and, in the same type, their gradient accumulators.

use std::ops::Range;

use device::{DeviceError, NormBackward, Op, Tensor, Write};

use crate::Context;
use crate::gradient_sums::{Contributions, clear, sum_contributions};
use crate::placement::Residual;

/// `weight[D]` and, for layer norm, `bias[D]`; equal on all ranks of the tensor-parallel group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormParams {
    /// `[1, D]`.
    pub weight: Tensor,
    /// `[1, D]`.
    pub bias: Option<Tensor>,
}

impl NormParams {
    /// `y[R, D] = norm(x)`; `stats[R, 2]` is what the backward passes need.
    ///
    /// # Errors
    /// The device's.
    pub fn forward(&self, context: &Context, x: Residual, y: Tensor, stats: Tensor) -> Result<Residual, DeviceError> {
        let norm = context.model.norm;
        context.submit(Op::Norm { norm, x: x.tensor(), weight: self.weight, bias: self.bias, y, stats })?;
        Ok(Residual::new(y))
    }

    /// `y[R, D]` written again, with the same bits as by [`NormParams::forward`]; the statistics, which were kept, stay
    /// as they are.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn forward_again(&self, context: &Context, x: Residual, y: Tensor) -> Result<(), DeviceError> {
        let scratch = context.scratch;
        scratch.scoped(|| self.forward(context, x, y, scratch.floats(x.tensor().rows, 2)).map(|_| ()))
    }

    /// `dx` = or += the gradient of the norm's input `x`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(
        &self,
        context: &Context,
        x: Residual,
        stats: Tensor,
        dy: Residual,
        dx: Tensor,
        write: Write,
    ) -> Result<Residual, DeviceError> {
        let norm = context.model.norm;
        let tensors = NormBackward { norm, x: x.tensor(), weight: self.weight, stats, dy: dy.tensor(), dx };
        context.submit(Op::NormBackwardInput { tensors, write })?;
        Ok(Residual::new(dx))
    }

    /// With `self` as accumulators: = or += the gradients of weight and bias, summed over the rows of this rank.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_weight(
        &self,
        context: &Context,
        x: Residual,
        stats: Tensor,
        dy: Residual,
        write: Write,
    ) -> Result<(), DeviceError> {
        if !context.trains_all() {
            return Ok(());
        }
        let (norm, x, dy, contributions) =
            (context.model.norm, x.tensor(), dy.tensor(), Contributions::of_residual(context));
        let of_rows = |rows: Range<usize>, dweight, dbias: Option<Tensor>, write| {
            std::iter::once(dweight).chain(dbias).try_for_each(|out| clear(context, out, write))?;
            let (x, stats, dy) = (x.rows_of(rows.clone()), stats.rows_of(rows.clone()), dy.rows_of(rows));
            context.submit(Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias })
        };
        match self.bias {
            None => sum_contributions(context, contributions, [self.weight], write, |rows, [weight], write| {
                of_rows(rows, weight, None, write)
            }),
            Some(bias) => {
                sum_contributions(context, contributions, [self.weight, bias], write, |rows, [weight, bias], write| {
                    of_rows(rows, weight, Some(bias), write)
                })
            }
        }
    }
}
