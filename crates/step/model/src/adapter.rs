//! An adapter of low rank for a linear layer: `y += scale B (A x)`, and the gradients of both.
//!
//! With a column-parallel layer `A` is replicated and `B` is split with the outputs; each rank computes all of `A x`
//! and its own outputs, and the gradient of `A` is a partial sum. With a row-parallel layer `A` is split with the
//! inputs and `B` is replicated; `A x` is a partial sum, so `y` is one too, and is summed with the layer's own, and the
//! gradient of `B` is a partial sum. Partial gradients are summed by the reduction, as the parameters declare. So an
//! adapter needs no collective of its own.

use device::{DeviceError, Op, Orientation, Tensor, Write};

use crate::Context;
use crate::gradient_sums::{Contributions, sum_contributions};
use crate::linear::contribution_to_weight;

/// The most linear layers that one product computes: query, key and value.
const MOST_IN_ONE: usize = 3;

/// The adapters of a product, by its parts; those that there are.
pub type Adapters = [Option<Adapter>; MOST_IN_ONE];

/// No adapters.
pub const NO_ADAPTERS: Adapters = [None; MOST_IN_ONE];

/// The adapter of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapter {
    /// `A[r, I]`, or `[r, I/tp]` with a row-parallel layer.
    pub a: Tensor,
    /// `B[O/tp, r]`, or `[O, r]` with a row-parallel layer.
    pub b: Tensor,
    /// Accumulators of the gradients of both, where these are made.
    pub accumulators: Option<AdapterAccumulators>,
    /// The first output of the layer among those of the product.
    pub first_output: usize,
}

/// Accumulators of an adapter's gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterAccumulators {
    pub a: Tensor,
    pub b: Tensor,
}

impl Adapter {
    /// The columns of the product's outputs that are the layer's.
    fn outputs(&self, y: Tensor) -> Tensor {
        y.cols_of(self.first_output..self.first_output + self.b.rows)
    }

    /// `scale A x [T, r]`, in scratch.
    fn inner(&self, context: &Context, x: Tensor) -> Result<Tensor, DeviceError> {
        let out = context.activation(context.scratch, x.rows, self.a.rows);
        product(context, Orientation::Nt, (x, self.a), (out, Write::Assign))?;
        scaled(context, out)
    }

    /// Gradient of `A x`, `[T, r]`, in scratch: `scale dy B`.
    fn inner_gradient(&self, context: &Context, dy: Tensor) -> Result<Tensor, DeviceError> {
        let out = context.activation(context.scratch, dy.rows, self.b.cols);
        product(context, Orientation::Nn, (self.outputs(dy), self.b), (out, Write::Assign))?;
        scaled(context, out)
    }

    /// `y += scale B (A x)`.
    pub(crate) fn forward(&self, context: &Context, x: Tensor, y: Tensor) -> Result<(), DeviceError> {
        context.scratch.scoped(|| {
            let inner = self.inner(context, x)?;
            product(context, Orientation::Nt, (inner, self.b), (self.outputs(y), Write::Accumulate))
        })
    }

    /// `dx += scale A^T (B^T dy)`.
    pub(crate) fn backward_input(&self, context: &Context, dy: Tensor, dx: Tensor) -> Result<(), DeviceError> {
        context.scratch.scoped(|| {
            let inner = self.inner_gradient(context, dy)?;
            product(context, Orientation::Nn, (inner, self.a), (dx, Write::Accumulate))
        })
    }

    /// Accumulators = or += the gradients of both matrices.
    pub(crate) fn backward_weight(
        &self,
        context: &Context,
        x: Tensor,
        dy: Tensor,
        write: Write,
    ) -> Result<(), DeviceError> {
        let Some(AdapterAccumulators { a, b }) = self.accumulators else { return Ok(()) };
        context.scratch.scoped(|| {
            let inner = self.inner(context, x)?;
            gradient(context, b, (inner, self.outputs(dy)), write)
        })?;
        context.scratch.scoped(|| {
            let inner = self.inner_gradient(context, dy)?;
            gradient(context, a, (x, inner), write)
        })
    }
}

fn product(
    context: &Context,
    orientation: Orientation,
    (a, b): (Tensor, Tensor),
    (out, write): (Tensor, Write),
) -> Result<(), DeviceError> {
    context.submit(Op::MatMul { orientation, a, b, bias: None, out, write })
}

/// `x` times the scale of adapters: a product with a diagonal matrix, each of whose sums has one term.
fn scaled(context: &Context, x: Tensor) -> Result<Tensor, DeviceError> {
    let Some(scale) = context.constants.adapter_scale else { return Ok(x) };
    let out = context.activation(context.scratch, x.rows, x.cols);
    product(context, Orientation::Nt, (x, scale), (out, Write::Assign))?;
    Ok(out)
}

fn gradient(
    context: &Context,
    accumulator: Tensor,
    (x, dy): (Tensor, Tensor),
    write: Write,
) -> Result<(), DeviceError> {
    let contributions = Contributions::of_sequences(context);
    sum_contributions(context, contributions, [accumulator], write, |rows, [out], write| {
        contribution_to_weight(context, out, x.rows_of(rows.clone()), dy.rows_of(rows), write)
    })
}
