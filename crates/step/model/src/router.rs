//! The router of experts: a map into logits, the choice, and the way back. The gate of a shared expert is a router of
//! one expert without bias, which every token chooses.
//!
//! Every rank of tensor parallelism has the logits of all experts. It makes the share of its own ones of the gradients,
//! of which sums over the ranks thus have each once.

use std::ops::Range;

use config::Routing;
use device::{DeviceError, Dtype, ExpertOp, ExpertRows, Op, Orientation, Reduction, SumTree, Tensor, Write};

use crate::context::Context;
use crate::experts_tensors::Routed;
use crate::gradient_sums::{Contributions, clear, sum_contributions};
use crate::placement::Whole;

/// The rule of a router, and the experts whose gradients this rank makes.
pub(crate) struct Router<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) routing: Routing,
    pub(crate) own: Range<usize>,
}

impl Router<'_> {
    /// Logits, choice and weights from the normed residual, by the map `weight[E, D]` with `bias[1, E]`.
    /// `correction[1, E]` is added to choice scores.
    pub(crate) fn choose(
        &self,
        (weight, bias): (Tensor, Option<Tensor>),
        normed: Whole,
        Routed { logits, choice, weights, rows: _ }: Routed,
        correction: Option<Tensor>,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        context.scratch.scoped(|| {
            let bias = bias.map(|bias| self.in_single(bias)).transpose()?;
            let (orientation, write) = (Orientation::Nt, Write::Assign);
            context.submit(Op::MatMul { orientation, a: normed.tensor(), b: weight, bias, out: logits, write })
        })?;
        let routing = self.routing;
        context.submit(ExpertOp::Route { logits, correction, routing, choice, weights }.into())
    }

    /// `bias[1, E]` in the type of logits, in scratch where it is stored otherwise.
    fn in_single(&self, bias: Tensor) -> Result<Tensor, DeviceError> {
        if bias.dtype == Dtype::F32 {
            return Ok(bias);
        }
        let to = self.context.scratch.floats(bias.rows, bias.cols);
        self.context.submit(Op::Copy { from: bias, to })?;
        Ok(to)
    }

    /// The rows of experts from `first_expert` on, of those of `choice[T, k]` that are not negative.
    pub(crate) fn group(&self, choice: Tensor, rows: ExpertRows, first_expert: usize) -> Result<(), DeviceError> {
        self.context.submit(ExpertOp::GroupRows { choice, first_expert, rows }.into())
    }

    /// Gradient of the logits, assigned to `dlogits[T, E]`, from this rank's share `dweights[T, k]+tp` of that of the
    /// weights, which becomes the sum.
    pub(crate) fn backward(
        &self,
        Routed { logits, choice, .. }: Routed,
        dweights: Tensor,
        dlogits: Tensor,
    ) -> Result<(), DeviceError> {
        let context = self.context;
        context.tp.all_reduce(context.stream, dweights, Reduction::Sum(SumTree::RANK_ORDER))?;
        let routing = self.routing;
        context.submit(ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits }.into())
    }

    /// `sum[T, D]+tp` += the share of this rank's experts in the gradient of the normed residual.
    pub(crate) fn backward_input(&self, weight: Tensor, dlogits: Tensor, sum: Tensor) -> Result<(), DeviceError> {
        if self.own.is_empty() {
            return Ok(());
        }
        let factors = (dlogits.cols_of(self.own.clone()), weight.rows_of(self.own.clone()));
        product(self.context, Orientation::Nn, factors, (sum, Write::Accumulate))
    }

    /// `accumulator[E, D]` = or += the rows of this rank's experts in the gradient of the map; zeros for others.
    pub(crate) fn backward_weight(
        &self,
        accumulator: Tensor,
        (normed, dlogits): (Whole, Tensor),
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, x) = (self.context, normed.tensor());
        let contributions = Contributions::of_sequences(context);
        sum_contributions(context, contributions, [accumulator], write, |rows, [out], write| {
            if self.own.len() < out.rows {
                clear(context, out, write)?;
            }
            if self.own.is_empty() {
                return Ok(());
            }
            let dlogits = dlogits.cols_of(self.own.clone()).rows_of(rows.clone());
            let out = out.rows_of(self.own.clone());
            product(context, Orientation::Tn, (dlogits, x.rows_of(rows)), (out, write))
        })
    }

    /// `accumulator[1, E]` = or += the sums of this rank's columns of `dlogits[T, E]`; zeros for others. Nothing
    /// without a bias.
    pub(crate) fn backward_bias(
        &self,
        accumulator: Option<Tensor>,
        dlogits: Tensor,
        write: Write,
    ) -> Result<(), DeviceError> {
        let Some(accumulator) = accumulator else { return Ok(()) };
        let context = self.context;
        sum_contributions(context, Contributions::of_sequences(context), [accumulator], write, |rows, [out], write| {
            clear(context, out, write)?;
            let x = dlogits.cols_of(self.own.clone()).rows_of(rows);
            context.submit(Op::ColumnSum { x, out: out.elements(self.own.clone()) })
        })
    }
}

pub(crate) fn product(
    context: &Context,
    orientation: Orientation,
    (a, b): (Tensor, Tensor),
    (out, write): (Tensor, Write),
) -> Result<(), DeviceError> {
    context.submit(Op::MatMul { orientation, a, b, bias: None, out, write })
}
