//! Biases of experts: the rows of a bias are products of a column of ones with one row of each expert, `1 b`. So they
//! need no operation of their own, and have their bits on every device.
//!
//! | value | product of an expert's rows |
//! |---|---|
//! | `h + b` | `1 b`, to which the product that makes `h` is added |
//! | gradient of `b`, from `dh` | `dh^T 1` |
//! | gradient of the bias of the output `y = w (h W^T + b)`, from `dy` | `dy^T w` |
//! | its share in the gradient of `w` | `dy b^T` |

use device::{DeviceError, Dtype, ExpertOp, ExpertRows, Op, Orientation, Tensor, Write};

use crate::context::Context;
use crate::expert_products::{RowTerms, product};
use crate::gradient_sums::clear;

/// Biases of the experts of one layer and microbatch, on rows of this rank.
pub(crate) struct ExpertBiases<'a> {
    context: &'a Context<'a>,
    terms: RowTerms,
    /// The first expert of the rows, among those that have a bias here: biases are not divided over ep.
    first: usize,
}

impl<'a> ExpertBiases<'a> {
    /// Biases of the rows of experts from `first` on of those of this tensor-parallel rank.
    pub(crate) fn new(context: &'a Context<'a>, terms: RowTerms, first: usize) -> ExpertBiases<'a> {
        ExpertBiases { context, terms, first }
    }

    /// `out[R, N]`, assigned: the bias `[E / tp, N]` of each row's expert; nothing without biases. Returns how a
    /// product is to be written there.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn begin(&self, bias: Option<Tensor>, out: Tensor) -> Result<Write, DeviceError> {
        let Some(bias) = bias else { return Ok(Write::Assign) };
        self.context.scratch.scoped(|| {
            let ones = self.ones(out.rows, out.dtype)?;
            self.product(Orientation::Nn, (ones, self.own(bias)), out)
        })?;
        Ok(Write::Accumulate)
    }

    /// `accumulator[E / tp, N]` = or += the sum of the rows of `gradient[R, N]` of each expert; nothing without biases.
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

    /// The same where each row is multiplied by its weight of `weights[T, k]`: `gradient[R, D]` is that of the token's
    /// sum over its experts.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn add_weighted_gradient(
        &self,
        accumulator: Option<Tensor>,
        (gradient, weights): (Tensor, Tensor),
        write: Write,
    ) -> Result<(), DeviceError> {
        let Some(accumulator) = accumulator else { return Ok(()) };
        self.context.scratch.scoped(|| {
            let to = self.context.scratch.floats(gradient.rows, 1);
            let (from, rows) = (of_slots(weights), self.rows_of_slots());
            self.context.submit(ExpertOp::GatherRows { from, rows, to }.into())?;
            self.add_sums(accumulator, (gradient, to), write)
        })
    }

    /// `dweights[T, k]` += the products of the rows of `gradient[R, D]` with the biases `[E / tp, D]` of their experts'
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
        let Some(bias) = bias.map(|bias| self.own(bias)) else { return Ok(()) };
        self.context.scratch.scoped(|| {
            let y = self.context.scratch.floats(gradient.rows, 1);
            self.product(Orientation::Nn, (gradient, bias.reshaped(bias.len(), 1)), y)?;
            let (weights, rows, out, write) = (None, self.rows_of_slots(), of_slots(dweights), Write::Accumulate);
            self.context.submit(ExpertOp::CombineRows { y, weights, rows, out, write }.into())
        })
    }

    /// `accumulator[E / tp, N]` = or += for each expert the sum of its rows of `gradient[R, N]`, times those of
    /// `factors[R, 1]`; zeros for experts of other ranks.
    fn add_sums(&self, accumulator: Tensor, (a, b): (Tensor, Tensor), write: Write) -> Result<(), DeviceError> {
        let (context, orientation, rows) = (self.context, Orientation::Tn, self.terms.rows());
        self.terms.sum(context, accumulator, write, |out, write, tokens| {
            let own = self.own(out);
            if own.rows < out.rows {
                clear(context, out, write)?;
            }
            let out = own.reshaped(own.len(), 1);
            context.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }.into())
        })
    }

    fn product(&self, orientation: Orientation, factors: (Tensor, Tensor), out: Tensor) -> Result<(), DeviceError> {
        product(self.context, orientation, factors, (out, Write::Assign), self.terms.rows())
    }

    /// The part `[G, N]` of the experts of the rows, of `[E / tp, N]`.
    fn own(&self, biases: Tensor) -> Tensor {
        biases.rows_of(self.first..self.first + self.terms.rows().groups())
    }

    /// `[R, 1]` in scratch.
    fn ones(&self, rows: usize, dtype: Dtype) -> Result<Tensor, DeviceError> {
        let out = self.context.scratch.tensor(rows, 1, dtype);
        self.context.submit(Op::Fill { out, value: 1.0 })?;
        Ok(out)
    }

    /// The rows of slots, each of which is taken for a token with one slot.
    fn rows_of_slots(&self) -> ExpertRows {
        let rows = self.terms.rows();
        ExpertRows { places: of_slots(rows.places), ..rows }
    }
}

/// `[T k, 1]` of `[T, k]`.
fn of_slots(tensor: Tensor) -> Tensor {
    tensor.reshaped(tensor.len(), 1)
}
