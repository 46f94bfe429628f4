//! The expert that all tokens go through: a dense block on the columns of this rank, whose output a gate may weigh.
//!
//! A gate is a router of one expert, so the weights' gradients come from the operations of experts. The first rank
//! makes the gate's share of the gradients.

use config::{RouterScores, RouterWeights, Routing};
use device::{DeviceError, ExpertOp, Orientation, Tensor, Write};

use crate::binding::SharedExpertParams;
use crate::context::Context;
use crate::experts_tensors::{SharedPending, SharedSaved};
use crate::placement::{Sharded, Whole};
use crate::router::{Router, product};

/// The weight of a gate is the sigmoid of its logit.
const OF_GATE: Routing =
    Routing { scores: RouterScores::Sigmoid, weights: RouterWeights::Scores, scale: 1.0, groups: None };

/// The shared expert of one layer and microbatch; its parameters may be accumulators, too.
pub(crate) struct SharedExpert<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) params: SharedExpertParams,
}

impl SharedExpert<'_> {
    /// Computes everything that the backward passes read, and the activation's output where it has a place.
    pub(crate) fn fill(&self, normed: Whole, saved: SharedSaved, activated: Option<Tensor>) -> Result<(), DeviceError> {
        self.params.dense.fill(self.context, normed, saved.dense, activated)?;
        match self.params.gate.zip(saved.gate) {
            Some((weight, gate)) => {
                self.gate().choose((weight, None), normed, gate, None)?;
                self.gate().group(gate.choice, gate.rows, 0)
            }
            None => Ok(()),
        }
    }

    /// `sum[T, D]+tp` += the output.
    pub(crate) fn project(&self, saved: SharedSaved, activated: Tensor, sum: Tensor) -> Result<(), DeviceError> {
        let (context, down, activated) = (self.context, self.params.dense.down, Sharded::new(activated));
        let Some(gate) = saved.gate else {
            return down.forward(context, activated, sum, Write::Accumulate).map(|_| ());
        };
        context.scratch.scoped(|| {
            let y = context.activation(context.scratch, context.shape.tokens(), context.model.hidden);
            down.forward(context, activated, y, Write::Assign)?;
            let (weights, rows, write) = (Some(gate.weights), gate.rows, Write::Accumulate);
            context.submit(ExpertOp::CombineRows { y, weights, rows, out: sum, write }.into())
        })
    }

    /// Gradients of the activation's input and of the gate's logits, from that of the output.
    pub(crate) fn backward_activated(
        &self,
        saved: SharedSaved,
        dy: Whole,
        pending: SharedPending,
    ) -> Result<(), DeviceError> {
        let (context, dense) = (self.context, self.params.dense);
        let (x, dx, y) = (saved.dense.hidden, pending.dense.hidden, pending.dense.activated);
        context.scratch.scoped(|| {
            let gradient = dense.lay_out_activated(context, context.scratch);
            let Some((gate, dlogits)) = saved.gate.zip(pending.gate) else {
                return dense.down.backward_activated(context, dy, x, (dx, y), gradient);
            };
            let dweights = context.scratch.floats(gate.weights.rows, gate.weights.cols);
            let dy = dense.down.backward_input(context, dy, gradient)?.tensor();
            let (activation, weights, rows) = (context.model.activation, gate.weights, gate.rows);
            let backward = ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows };
            context.submit(backward.into())?;
            self.gate().backward(gate, dweights, dlogits)
        })
    }

    /// `sum[T, D]+tp` += the gradient of the normed residual.
    pub(crate) fn backward_input(&self, pending: SharedPending, sum: Tensor) -> Result<(), DeviceError> {
        let factors = (pending.dense.hidden, self.params.dense.up.weight);
        product(self.context, Orientation::Nn, factors, (sum, Write::Accumulate))?;
        match self.params.gate.zip(pending.gate) {
            Some((weight, dlogits)) => self.gate().backward_input(weight, dlogits, sum),
            None => Ok(()),
        }
    }

    /// Accumulators of the last map = or += its gradient.
    pub(crate) fn backward_down(&self, pending: SharedPending, dy: Whole, write: Write) -> Result<(), DeviceError> {
        self.params.dense.down.backward_weight(self.context, Sharded::new(pending.dense.activated), dy, write)
    }

    /// The gradients of the first maps, and of the gate.
    pub(crate) fn backward_up(&self, pending: SharedPending, normed: Whole, write: Write) -> Result<(), DeviceError> {
        let hidden = Sharded::new(pending.dense.hidden);
        self.params.dense.up.backward_weight(self.context, normed, hidden, write)?;
        match self.params.gate.zip(pending.gate) {
            Some((weight, dlogits)) => self.gate().backward_weight(weight, (normed, dlogits), write),
            None => Ok(()),
        }
    }

    fn gate(&self) -> Router<'_> {
        let own = if self.context.tp.position() == 0 { 0..1 } else { 0..0 };
        Router { context: self.context, routing: OF_GATE, own }
    }
}
