//! The balance of a layer's experts: corrections of the choice, losses of the router, and what a step counts.
//!
//! Counts are integers, and of sequences or of whole steps, so neither ranks nor microbatches change a bit of them. The
//! gradient of a token reads the loads and its own logits alone. A forward pass of a training step counts; neither its
//! repetition nor an evaluation does. Ranks of tensor parallelism have the same tokens and count the same, of which the
//! sum over ranks takes the first rank's.

use config::{Balance, ExpertsSpec, LoadSet, Routing};
use device::{BalanceOp, BalanceTerm, DeviceError, Dtype, Op, RouterTerms, RouterValues, Tensor, Write};

use crate::context::{Batch, Context};
use crate::context_parallel::{choices, losses};
use crate::experts_spec::spec;
use crate::experts_tensors::Routed;
use crate::router_constants::RouterRow;

/// The router of layer `layer` on one microbatch.
#[derive(Clone, Copy)]
pub(crate) struct RouterBalance<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) batch: &'a Batch,
    pub(crate) layer: u32,
}

impl RouterBalance<'_> {
    /// `[1,E]`, added to choice scores.
    pub(crate) fn correction(&self) -> Option<Tensor> {
        self.row().correction
    }

    /// `[T,k]`: the choices that experts compute. In training, those beyond the capacity are -1, in scratch.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn within_capacity(&self, routed: Routed) -> Result<Tensor, DeviceError> {
        match self.capacity() {
            None => Ok(routed.choice),
            Some(capacity) => self.limit(routed, capacity, None),
        }
    }

    /// Assigns the choices of [`RouterBalance::within_capacity`] to `kept[T,k]`.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn keep_within_capacity(&self, routed: Routed, kept: Tensor) -> Result<(), DeviceError> {
        match self.capacity() {
            None => self.context.submit(Op::Copy { from: routed.choice, to: kept }),
            Some(capacity) => self.limit_at(routed, capacity, None, kept),
        }
    }

    /// The most tokens of a sequence for each expert.
    fn capacity(&self) -> Option<usize> {
        self.context.router_run?;
        spec(self.context).capacity_of(self.context.shape.sequence_length)
    }

    fn limit(&self, routed: Routed, capacity: usize, dropped: Option<Tensor>) -> Result<Tensor, DeviceError> {
        let kept = self.context.scratch.tensor(routed.choice.rows, routed.choice.cols, Dtype::I32);
        self.limit_at(routed, capacity, dropped, kept)?;
        Ok(kept)
    }

    fn limit_at(
        &self,
        routed: Routed,
        capacity: usize,
        dropped: Option<Tensor>,
        kept: Tensor,
    ) -> Result<(), DeviceError> {
        let (context, Routed { choice, weights, .. }) = (self.context, routed);
        let (sequences, experts, per_token) = (context.shape.sequences, routed.logits.cols, choice.cols);
        let limited = |[choice, weights, labels, kept]: [Tensor; 4], dropped: Option<Tensor>| {
            let op = BalanceOp::LimitChoices { choice, weights, labels, sequences, experts, capacity, kept, dropped };
            context.submit(op.into())
        };
        let Some(labels_of_all) = self.batch.labels_of_all else {
            return limited([choice, weights, self.batch.labels, kept], dropped);
        };
        // Every rank limits the choices of whole sequences, and the first of them counts.
        context.scratch.scoped(|| {
            let tokens = sequences * context.shape.sequence_length;
            let [of_all, kept_of_all] = [(); 2].map(|()| context.scratch.tensor(tokens, per_token, Dtype::I32));
            let weights_of_all = context.scratch.floats(tokens, per_token);
            choices::gather(context, choice, of_all)?;
            choices::gather(context, weights, weights_of_all)?;
            let dropped = dropped.filter(|_| choices::counts(context));
            limited([of_all, weights_of_all, labels_of_all, kept_of_all], dropped)?;
            choices::own_rows(context, kept_of_all, kept)
        })
    }

    /// Adds choices, losses and entropy of the microbatch's tokens to the sums of a training step.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn count(&self, routed: Routed) -> Result<(), DeviceError> {
        let (context, routers) = (self.context, self.context.constants.routers);
        let Some(routers) = routers.filter(|_| context.router_run.is_some()) else { return Ok(()) };
        if let Some(counts) = self.row().counts {
            let (choice, labels, write) = (routed.choice, self.batch.labels, Write::Accumulate);
            context.submit(BalanceOp::CountChoices { choice, labels, counts, write }.into())?;
        }
        if let (Some(capacity), Some(dropped)) = (self.capacity(), routers.dropped) {
            context.scratch.scoped(|| self.limit(routed, capacity, Some(dropped)))?;
        }
        let sums = [routers.balance_sums, routers.z_loss_sums, routers.entropy_sums];
        if sums.iter().all(Option::is_none) {
            return Ok(());
        }
        context.scratch.scoped(|| {
            let terms = self.terms(routed)?;
            let values = sums.map(|sums| sums.map(|_| context.scratch.floats(1, context.shape.tokens())));
            let [balance, z_loss, entropy] = values;
            let (logits, scores) = (routed.logits, self.routing().scores);
            let values_of = RouterValues { balance, z_loss, entropy };
            context.submit(BalanceOp::RouterLosses { logits, scores, terms, values: values_of }.into())?;
            let mut summed = values.into_iter().zip(sums).filter_map(|(values, sums)| values.zip(sums));
            summed.try_for_each(|(values, sums)| losses::add(context, self.batch, values, sums))
        })
    }

    /// `dlogits[T,E]` += the gradient of the losses.
    ///
    /// # Errors
    /// The device's and the communicator's.
    pub(crate) fn backward(&self, routed: Routed, dlogits: Tensor) -> Result<(), DeviceError> {
        let (context, Balance { loss, z_loss, .. }) = (self.context, self.balance());
        let Some(run) = context.router_run.filter(|_| loss.is_some() || z_loss.is_some()) else { return Ok(()) };
        context.scratch.scoped(|| {
            let (terms, scores) = (self.terms(routed)?, self.routing().scores);
            let (logits, labels, scale) = (routed.logits, self.batch.labels, run.loss_scale);
            context.submit(BalanceOp::RouterLossesBackward { logits, labels, scores, terms, scale, dlogits }.into())
        })
    }

    /// The losses, with the loads of sequences in scratch.
    fn terms(&self, routed: Routed) -> Result<RouterTerms, DeviceError> {
        let Balance { loss, over, z_loss, .. } = self.balance();
        let balance = match (loss, over, self.row().load) {
            (Some(coefficient), LoadSet::Step, Some(load)) => Some(BalanceTerm { coefficient, load }),
            (Some(coefficient), LoadSet::Sequence, _) => {
                Some(BalanceTerm { coefficient, load: self.load_of_sequences(routed)? })
            }
            (None, LoadSet::Step | LoadSet::Sequence, _) | (Some(_), LoadSet::Step, None) => None,
        };
        Ok(RouterTerms { balance, z_loss })
    }

    /// `[B,E]` in scratch. Ranks that share sequences add their counts.
    fn load_of_sequences(&self, routed: Routed) -> Result<Tensor, DeviceError> {
        let (context, experts) = (self.context, routed.logits.cols);
        let (scratch, sequences) = (context.scratch, context.shape.sequences);
        let load = scratch.floats(sequences, experts);
        scratch.scoped(|| {
            let counts = scratch.tensor(sequences, experts, Dtype::I64);
            let (choice, labels, write) = (routed.choice, self.batch.labels, Write::Assign);
            context.submit(BalanceOp::CountChoices { choice, labels, counts, write }.into())?;
            context.sum_over_sequences(counts)?;
            context.submit(BalanceOp::Load { counts, load }.into())
        })?;
        Ok(load)
    }

    fn row(&self) -> RouterRow {
        let row = spec(self.context).row_of(self.layer);
        self.context.constants.routers.map_or(RouterRow::default(), |routers| routers.of_row(row))
    }

    fn balance(&self) -> Balance {
        let ExpertsSpec { balance, .. } = *spec(self.context);
        balance
    }

    fn routing(&self) -> Routing {
        spec(self.context).routing
    }
}
