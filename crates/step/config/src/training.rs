//! The optimisation of a run: steps, batch, learning rate, AdamW, clipping.

use crate::anomalies::Anomalies;
use crate::batch::{BatchOrigin, BatchRamp, BatchSizes};
use crate::learning_rate::LearningRateSchedule;
use crate::offload::Offload;
use crate::optimizer::Optimizer;
use crate::parameter_groups::ParameterGroup;
use crate::precision::{GradientSums, Precision};

/// Everything about the optimisation that is not the model and not the parallelism.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainSpec {
    /// Optimizer steps of the run.
    pub steps: u32,
    /// Sequences per optimizer step, over all ranks, once the batch is as large as it gets. The primary quantity: data
    /// parallelism and the microbatch size only decide how it is computed.
    pub global_batch: usize,
    /// Smaller batches in the beginning.
    pub batch_ramp: Option<BatchRamp>,
    /// Where a run that continues from a checkpoint is in its data. No run file says it, the checkpoint does.
    pub batch_origin: BatchOrigin,
    /// Tokens per sequence; at most the model's context.
    pub sequence_length: usize,
    /// Peak learning rate.
    pub learning_rate: f32,
    /// Learning rate at the end of the decay.
    pub min_learning_rate: f32,
    /// Steps over which the learning rate rises linearly from 0.
    pub warmup_steps: u32,
    /// Shape after the warm-up.
    pub schedule: LearningRateSchedule,
    /// Steps of the schedule, where they are not [`TrainSpec::steps`].
    pub schedule_steps: Option<u32>,
    /// How gradients become updates.
    pub optimizer: Optimizer,
    /// Decoupled weight decay; not applied to norms and biases.
    pub weight_decay: f32,
    /// AdamW's decay of the first moment.
    pub beta1: f32,
    /// AdamW's decay of the second moment.
    pub beta2: f32,
    /// AdamW's denominator offset.
    pub epsilon: f32,
    /// Largest global gradient norm; `None` leaves gradients as they are.
    pub clip_norm: Option<f32>,
    /// Factor of the gradient that the token table gets from its use as the input of the model, before it is
    /// accumulated; 1 leaves it as it is. Where the table is tied, its use as the output keeps its gradient whole
    /// (GLM-130B, Zeng et al. 2022).
    pub embedding_gradient_scale: f32,
    /// Decay of the exponential moving average of the weights; `None` for no average.
    pub ema_decay: Option<f32>,
    /// Parameters with rates and decays of their own.
    pub groups: Vec<ParameterGroup>,
    /// The data type in which parameters and activations are stored.
    pub precision: Precision,
    /// The data type in which gradients are summed.
    pub sums: GradientSums,
    /// Which state is in memory of the host between its uses.
    pub offload: Offload,
    /// The answers to steps that are not as usual.
    pub anomalies: Anomalies,
    /// Seed of initial weights, dropout and data order.
    pub seed: u64,
}

impl TrainSpec {
    /// The sequences of every step.
    pub fn batches(&self) -> BatchSizes {
        BatchSizes { global_batch: self.global_batch, ramp: self.batch_ramp, origin: self.batch_origin }
    }
}
