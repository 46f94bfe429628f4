//! Biases of experts: the rows of a bias are products of a column of ones with one row of each expert, `1 b`. So they
//! need no operation of their own, and have their bits on every device.
//!
//! | value | product of an expert's rows |
//! |---|---|
//! | `h + b` | `1 b`, to which the product that makes `h` is added |
//! | gradient of `b`, from `dh` | `dh^T 1` |
//! | gradient of the bias of the output `y = w (h W^T + b)`, from `dy` | `dy^T w` |
//! | its share in the gradient of `w` | `dy b^T` |

use device::{DeviceError, Dtype, ExpertOp, ExpertRows, Op, Orientation, Tensor, TokenRange, Write};

use crate::context::Context;
use crate::experts_tensors::Routed;
use crate::gradient_sums::{Contributions, sum_contributions};

/// Biases of the experts of one layer and microbatch, on the rows of this rank.
pub(crate) struct ExpertBiases<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) rows: ExpertRows,
}

impl ExpertBiases<'_> {
    /// `out[R, N]`, assigned: the bias `[G, N]` of each row's expert; nothing without biases. Returns how a product is
    /// to be written there.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn begin(&self, bias: Option<Tensor>, out: Tensor) -> Result<Write, DeviceError> {
        let Some(bias) = bias else { return Ok(Write::Assign) };
        self.context.scratch.scoped(|| {
            let ones = self.ones(out.rows, out.dtype)?;
            self.product(Orientation::Nn, (ones, bias), out)
        })?;
        Ok(Write::Accumulate)
    }

    /// `accumulator[G, N]` = or += the sum of the rows of `gradient[R, N]` of each expert; nothing without biases.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn add_gradient(
        &self,
        accumulator: Option<Tensor>,
        gradient: Tensor,
        write: Write,
    ) -> Result<(), DeviceError> {
        let Some(accumulator) = accumulator else { return Ok(()) };
        self.context.scratch.scoped(|| {
            let ones = self.ones(gradient.rows, gradient.dtype)?;
            self.add_sums(accumulator, (gradient, ones), write)
        })
    }

    /// The same where each row is multiplied by its weight of `routed`: `gradient[R, D]` is that of the token's sum
    /// over its experts.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn add_weighted_gradient(
        &self,
        accumulator: Option<Tensor>,
        (gradient, routed): (Tensor, Routed),
        write: Write,
    ) -> Result<(), DeviceError> {
        let Some(accumulator) = accumulator else { return Ok(()) };
        self.context.scratch.scoped(|| {
            let weights = self.context.scratch.floats(gradient.rows, 1);
            let (from, rows) = (of_slots(routed.weights), self.rows_of_slots());
            self.context.submit(ExpertOp::GatherRows { from, rows, to: weights }.into())?;
            self.add_sums(accumulator, (gradient, weights), write)
        })
    }

    /// `dweights[T, k]` += the products of the rows of `gradient[R, D]` with the biases `[G, D]` of their experts'
    /// outputs; nothing without biases.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn add_to_weights(
        &self,
        bias: Option<Tensor>,
        gradient: Tensor,
        dweights: Tensor,
    ) -> Result<(), DeviceError> {
        let Some(bias) = bias else { return Ok(()) };
        self.context.scratch.scoped(|| {
            let y = self.context.scratch.floats(gradient.rows, 1);
            self.product(Orientation::Nn, (gradient, bias.reshaped(bias.len(), 1)), y)?;
            let (weights, rows, out, write) = (None, self.rows_of_slots(), of_slots(dweights), Write::Accumulate);
            self.context.submit(ExpertOp::CombineRows { y, weights, rows, out, write }.into())
        })
    }

    /// `accumulator[G, N]` = or += for each expert the sum of its rows of `gradient[R, N]`, times those of
    /// `factors[R, 1]`.
    fn add_sums(
        &self,
        accumulator: Tensor,
        (gradient, factors): (Tensor, Tensor),
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, rows) = (self.context, self.rows);
        let (contributions, all) = (Contributions::of_sequences(context), 0..context.shape.tokens());
        sum_contributions(context, contributions, [accumulator], write, |tokens, [out], write| {
            let range = TokenRange { start: tokens.start, end: tokens.end };
            let (orientation, tokens) = (Orientation::Tn, (tokens != all).then_some(range));
            let (a, b, out) = (gradient, factors, out.reshaped(out.len(), 1));
            context.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into())
        })
    }

    fn product(&self, orientation: Orientation, (a, b): (Tensor, Tensor), out: Tensor) -> Result<(), DeviceError> {
        let (rows, tokens, write) = (self.rows, None, Write::Assign);
        self.context.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into())
    }

    /// `[R, 1]` in scratch.
    fn ones(&self, rows: usize, dtype: Dtype) -> Result<Tensor, DeviceError> {
        let out = self.context.scratch.tensor(rows, 1, dtype);
        self.context.submit(Op::Fill { out, value: 1.0 })?;
        Ok(out)
    }

    /// The rows of slots, each of which is taken for a token with one slot.
    fn rows_of_slots(&self) -> ExpertRows {
        ExpertRows { places: of_slots(self.rows.places), ..self.rows }
    }
}

/// `[T k, 1]` of `[T, k]`.
fn of_slots(tensor: Tensor) -> Tensor {
    tensor.reshaped(tensor.len(), 1)
}
