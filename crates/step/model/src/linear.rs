//! Linear layers split over tensor parallelism: parameters and, in the same type, their gradient accumulators.

use device::{DeviceError, Op, Orientation, Tensor, Write};

use crate::Context;
use crate::adapter::{Adapter, Adapters};
use crate::gradient_sums::{Contributions, clear, sum_contributions};
use crate::placement::{Partial, Residual, Sharded, Whole};

/// `W[O/tp, I]` and `b[O/tp]`: outputs are split. Several matrices with the same input may be in one, row under row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnParallel {
    /// `[O/tp, I]`.
    pub weight: Tensor,
    /// `[1, O/tp]`.
    pub bias: Option<Tensor>,
    /// The adapters of the matrices that have one.
    pub adapters: Adapters,
}

/// `W[O, I/tp]` and `b[O]`: inputs are split, outputs are pending sums. The bias is added once, after the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowParallel {
    /// `[O, I/tp]`.
    pub weight: Tensor,
    /// `[1, O]`, equal on all ranks.
    pub bias: Option<Tensor>,
    /// The adapter, if there is one.
    pub adapters: Adapters,
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
        each(&self.adapters, |adapter| adapter.forward(context, x.tensor(), out))?;
        Ok(Sharded::new(out))
    }

    /// `out[T, O/tp] = x W^T + b` and `activated = activation(out)`, without adapters, whose outputs come between.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn forward_activated(
        &self,
        context: &Context,
        x: Whole,
        out: Tensor,
        activated: Tensor,
    ) -> Result<Sharded, DeviceError> {
        debug_assert!(!self.has_adapters(), "adapters add to the activation's input");
        let (a, b, bias, activation) = (x.tensor(), self.weight, self.bias, context.model.activation);
        context.submit(Op::MatMulActivation { a, b, bias, activation, x: out, y: activated })?;
        Ok(Sharded::new(activated))
    }

    /// `out[T, I]+tp = dy W`: the share of this rank's outputs.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(&self, context: &Context, dy: Sharded, out: Tensor) -> Result<Partial, DeviceError> {
        gradient_of_input(context, self.weight, dy.tensor(), out)?;
        each(&self.adapters, |adapter| adapter.backward_input(context, dy.tensor(), out))?;
        Ok(Partial::new(out))
    }

    /// With `self` as accumulators: `weight` = or += `dy^T x`, `bias` = or += the column sums of `dy`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_weight(&self, context: &Context, x: Whole, dy: Sharded, write: Write) -> Result<(), DeviceError> {
        let (x, dy) = (x.tensor(), dy.tensor());
        if context.trains_all() {
            gradient_of_weight(context, self.weight, x, dy, write)?;
            gradient_of_bias(context, Contributions::of_sequences(context), self.bias, dy, write)?;
        }
        each(&self.adapters, |adapter| adapter.backward_weight(context, x, dy, write))
    }

    pub(crate) fn has_adapters(&self) -> bool {
        has_any(&self.adapters)
    }

    /// Whether it makes any gradient.
    pub(crate) fn is_trained(&self, context: &Context) -> bool {
        context.trains_all() || self.has_adapters()
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
        each(&self.adapters, |adapter| adapter.forward(context, x.tensor(), out))?;
        Ok(Partial::new(out))
    }

    /// `out[T, I/tp] = dy W`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_input(&self, context: &Context, dy: Whole, out: Tensor) -> Result<Sharded, DeviceError> {
        gradient_of_input(context, self.weight, dy.tensor(), out)?;
        each(&self.adapters, |adapter| adapter.backward_input(context, dy.tensor(), out))?;
        Ok(Sharded::new(out))
    }

    /// From the gradient `dy` of the output, where the input is `activated[T, I/tp]`, an activation's output: assigns
    /// the gradient `hidden_gradient` of the activation's input `hidden`, and `activated` once more. `scratch[T, I/tp]`
    /// holds the gradient of `activated`.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn backward_activated(
        &self,
        context: &Context,
        dy: Whole,
        hidden: Tensor,
        (hidden_gradient, activated): (Tensor, Tensor),
        scratch: Tensor,
    ) -> Result<(), DeviceError> {
        let (activation, x, dx, y) = (context.model.activation, hidden, hidden_gradient, activated);
        if has_any(&self.adapters) {
            let dy = self.backward_input(context, dy, scratch)?.tensor();
            return context.submit(Op::ActivationBackward { activation, x, dy, dx, y });
        }
        let (a, b) = (dy.tensor(), self.weight);
        context.submit(Op::MatMulActivationBackward { a, b, activation, dy: scratch, x, dx, y })
    }

    /// With `self` as accumulators: `weight` = or += `dy^T x`.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_weight(&self, context: &Context, x: Sharded, dy: Whole, write: Write) -> Result<(), DeviceError> {
        if context.trains_all() {
            gradient_of_weight(context, self.weight, x.tensor(), dy.tensor(), write)?;
        }
        each(&self.adapters, |adapter| adapter.backward_weight(context, x.tensor(), dy.tensor(), write))
    }

    /// Whether it makes any gradient of a matrix.
    pub(crate) fn is_trained(&self, context: &Context) -> bool {
        context.trains_all() || has_any(&self.adapters)
    }

    /// With `self` as accumulators: `bias` = or += the column sums of `dy` over the rows of this rank: the same bits on
    /// every rank while residuals are replicated.
    ///
    /// # Errors
    /// The device's.
    pub fn backward_bias(&self, context: &Context, dy: Residual, write: Write) -> Result<(), DeviceError> {
        match context.trains_all() {
            true => gradient_of_bias(context, Contributions::of_residual(context), self.bias, dy.tensor(), write),
            false => Ok(()),
        }
    }
}

/// Does `work` with each adapter that there is.
fn each(adapters: &Adapters, work: impl Fn(&Adapter) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    adapters.iter().flatten().try_for_each(work)
}

fn has_any(adapters: &Adapters) -> bool {
    adapters.iter().any(Option::is_some)
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
