//! A dense feed-forward block, on the columns of this rank: up (and gate), activation, down.
//!
//! The activation's output is four times as wide as the residual and cheap, so it is not kept: the backward pass of the
//! input writes it again next to the gradient.

use device::{DeviceError, Frame, Op, Tensor, Write};

use crate::binding::DenseParams;
use crate::context::Context;
use crate::placement::{Partial, Residual, Sharded, Whole, enter, leave};

/// Values that the backward passes read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DenseSaved {
    /// `[T, F]`, or gate | up `[T, 2F]`: input of the activation.
    pub(crate) hidden: Tensor,
}

/// Values that the backward pass of the input leaves for that of the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DensePending {
    /// `[T, F]`: the activation's output.
    pub(crate) activated: Tensor,
    /// Gradient of what [`DenseSaved`] has.
    pub(crate) hidden: Tensor,
}

/// Laying out; `self` may be accumulators, too.
impl DenseParams {
    /// Columns `F/tp` of this rank after the activation.
    fn activated_width(&self) -> usize {
        self.down.weight.cols
    }

    /// `[T, F]` or `[T, 2F]` in `frame`.
    fn hidden(&self, context: &Context, frame: &Frame) -> Tensor {
        let width = self.activated_width() * context.model.activation.inputs_per_output();
        context.activation(frame, context.shape.tokens(), width)
    }

    pub(crate) fn lay_out_saved(&self, context: &Context, until_input: &Frame) -> DenseSaved {
        DenseSaved { hidden: self.hidden(context, until_input) }
    }

    pub(crate) fn lay_out_pending(&self, context: &Context, frame: &Frame) -> DensePending {
        DensePending { activated: self.lay_out_activated(context, frame), hidden: self.hidden(context, frame) }
    }

    /// The place of the activation's output `[T, F]`, or of its gradient.
    pub(crate) fn lay_out_activated(&self, context: &Context, frame: &Frame) -> Tensor {
        context.activation(frame, context.shape.tokens(), self.activated_width())
    }
}

impl DenseParams {
    /// Computes everything that the backward passes read. The activation's output is written to `activated[T, F]` at
    /// once where it has a place.
    pub(crate) fn fill(
        &self,
        context: &Context,
        normed: Whole,
        DenseSaved { hidden }: DenseSaved,
        activated: Option<Tensor>,
    ) -> Result<(), DeviceError> {
        let filled = match activated {
            None => self.up.forward(context, normed, hidden),
            Some(activated) => self.up.forward_activated(context, normed, hidden, activated),
        };
        filled.map(|_| ())
    }

    /// The activation's output `[T, F]`, in scratch, from its input.
    pub(crate) fn activate(
        &self,
        context: &Context,
        DenseSaved { hidden: x }: DenseSaved,
    ) -> Result<Tensor, DeviceError> {
        let (activation, y) = (context.model.activation, self.lay_out_activated(context, context.scratch));
        context.submit(Op::Activation { activation, x, y })?;
        Ok(y)
    }

    /// Gradient of the normed residual, at `input[R, D]`, from that of the block's output.
    pub(crate) fn backward_input(
        &self,
        context: &Context,
        DenseSaved { hidden: x }: DenseSaved,
        dy: Residual,
        (DensePending { activated, hidden }, input): (DensePending, Tensor),
    ) -> Result<Residual, DeviceError> {
        context.scratch.scoped(|| {
            let gradient = self.lay_out_activated(context, context.scratch);
            self.down.backward_activated(context, enter(context, dy)?, x, (hidden, activated), gradient)
        })?;
        context.scratch.scoped(|| {
            let sum = Partial::target(context, input);
            let partial = self.up.backward_input(context, Sharded::new(hidden), sum)?;
            leave(context, partial)?.kept_at(context, input)
        })
    }

    /// With `self` as accumulators: = or += the gradients of all parameters; `normed` is the block's input, `dy` the
    /// gradient of its output.
    pub(crate) fn backward_weight(
        &self,
        context: &Context,
        DensePending { activated, hidden }: DensePending,
        normed: Residual,
        dy: Residual,
        write: Write,
    ) -> Result<(), DeviceError> {
        self.down.backward_bias(context, dy, write)?;
        if self.down.is_trained(context) {
            context
                .scratch
                .scoped(|| self.down.backward_weight(context, Sharded::new(activated), enter(context, dy)?, write))?;
        }
        if !self.up.is_trained(context) {
            return Ok(());
        }
        context
            .scratch
            .scoped(|| self.up.backward_weight(context, enter(context, normed)?, Sharded::new(hidden), write))
    }
}
