//! Linear maps split over tensor parallelism: parameters and, in the same type, their gradient accumulators.

use device::{DeviceError, Op, Orientation, Tensor, Write};

use crate::Context;
use crate::gradient_sums::{Contributions, clear, sum_contributions};
use crate::placement::{Partial, Residual, Sharded, Whole};

/// `W[O/tp, I]` and `b[O/tp]`: outputs are split. Several matrices with the same input may be in one, row under row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnParallel {
    /// `[O/tp, I]`.
    pub weight: Tensor,
    /// `[1, O/tp]`.
    pub bias: Option<Tensor>,
}

/// `W[O, I/tp]` and `b[O]`: inputs are split, outputs are pending sums. The bias is added once, after the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowParallel {
    /// `[O, I/tp]`.
    pub weight: Tensor,
    /// `[1, O]`, equal on all ranks.
    pub bias: Option<Tensor>,
}

impl ColumnParallel {
    /// `out[T, O/tp] = x W^T + b`.
    ///
    /// # Errors
    /// The device's.
    pub fn forward(&self, context: &Context, x: Whole, out: Tensor) -> Result<Sharded, DeviceError> {
        context.submit(Op::MatMul {
            orientation: Orientation::Nt,
            a: x.tensor(),
            b: self.weight,
            bias: self.bias,
            out,
            write: Write::Assign,
        })?;
        Ok(Sharded::new(out))
    }

    /// `out[T, I]+tp = dy W`: the share of this rank's outputs.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(&self, context: &Context, dy: Sharded, out: Tensor) -> Result<Partial, DeviceError> {
        gradient_of_input(context, self.weight, dy.tensor(), out)?;
        Ok(Partial::new(out))
    }

    /// With `self` as accumulators: `weight` = or += `dy^T x`, `bias` = or += the column sums of `dy`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_weight(&self, context: &Context, x: Whole, dy: Sharded, write: Write) -> Result<(), DeviceError> {
        let (x, dy) = (x.tensor(), dy.tensor());
        gradient_of_weight(context, self.weight, x, dy, write)?;
        gradient_of_bias(context, Contributions::of_sequences(context), self.bias, dy, write)
    }
}

impl RowParallel {
    /// `out[T, O]+tp` = or += `x W^T`, without the bias.
    ///
    /// # Errors
    /// The device's.
    pub fn forward(&self, context: &Context, x: Sharded, out: Tensor, write: Write) -> Result<Partial, DeviceError> {
        context.submit(Op::MatMul {
            orientation: Orientation::Nt,
            a: x.tensor(),
            b: self.weight,
            bias: None,
            out,
            write,
        })?;
        Ok(Partial::new(out))
    }

    /// `out[T, I/tp] = dy W`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(&self, context: &Context, dy: Whole, out: Tensor) -> Result<Sharded, DeviceError> {
        gradient_of_input(context, self.weight, dy.tensor(), out)?;
        Ok(Sharded::new(out))
    }

    /// With `self` as accumulators: `weight` = or += `dy^T x`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_weight(&self, context: &Context, x: Sharded, dy: Whole, write: Write) -> Result<(), DeviceError> {
        gradient_of_weight(context, self.weight, x.tensor(), dy.tensor(), write)
    }

    /// With `self` as accumulators: `bias` = or += the column sums of `dy` over the rows of this rank: the same bits on
    /// every rank while residuals are replicated.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_bias(&self, context: &Context, dy: Residual, write: Write) -> Result<(), DeviceError> {
        gradient_of_bias(context, Contributions::of_residual(context), self.bias, dy.tensor(), write)
    }
}

fn gradient_of_input(context: &Context, weight: Tensor, dy: Tensor, out: Tensor) -> Result<(), DeviceError> {
    let orientation = Orientation::Nn;
    context.submit(Op::MatMul { orientation, a: dy, b: weight, bias: None, out, write: Write::Assign })
}

fn gradient_of_weight(
    context: &Context,
    accumulator: Tensor,
    x: Tensor,
    dy: Tensor,
    write: Write,
) -> Result<(), DeviceError> {
    sum_contributions(context, Contributions::of_sequences(context), [accumulator], write, |rows, [out], write| {
        contribution_to_weight(context, out, x.rows_of(rows.clone()), dy.rows_of(rows), write)
    })
}

/// `out[O/tp, I]` = or += `dy^T x` in single precision: the gradient of a weight as far as the rows of `x` and `dy`
/// make it.
pub(crate) fn contribution_to_weight(
    context: &Context,
    out: Tensor,
    x: Tensor,
    dy: Tensor,
    write: Write,
) -> Result<(), DeviceError> {
    context.submit(Op::MatMul { orientation: Orientation::Tn, a: dy, b: x, bias: None, out, write })
}

fn gradient_of_bias(
    context: &Context,
    contributions: Contributions,
    accumulator: Option<Tensor>,
    dy: Tensor,
    write: Write,
) -> Result<(), DeviceError> {
    let Some(accumulator) = accumulator else { return Ok(()) };
    sum_contributions(context, contributions, [accumulator], write, |rows, [out], write| {
        clear(context, out, write)?;
        context.submit(Op::ColumnSum { x: dy.rows_of(rows), out })
    })
}
