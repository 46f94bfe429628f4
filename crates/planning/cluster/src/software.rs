//! Differences between public trainers and pleach, in kernels, fusion and overlap: `[software]` of a profile, or a
//! file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AttentionSums, FlashKernels, Offers};

/// The differences that change times by more than a per cent. It describes a trainer, never a model. Reading and
/// writing are in `trainer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Software {
    /// Which trainer, with its version.
    pub name: String,
    /// Operations that the host issues for each kernel of pleach: views, casts, allocations and nodes of the backward
    /// graph among them.
    pub operations_per_kernel: f64,
    /// How products of single-precision numbers are computed.
    pub single_products: SingleProducts,
    /// How attention is computed.
    pub attention: AttentionKernels,
    /// The generation of its fused kernels.
    pub flash_kernels: FlashKernels,
    /// The order of its sums.
    pub attention_sums: AttentionSums,
    /// Bytes that the kernels between the two products of unfused attention move per score, forward, without dropout.
    pub score_bytes_forward: f64,
    /// The same backward.
    pub score_bytes_backward: f64,
    /// How the head computes logits and loss.
    pub head: HeadKernels,
    /// The operations of recomputing a whole layer.
    pub recomputed_layers: RecomputedLayers,
    /// How a microbatch's gradient of the weights joins the sum.
    pub gradient_sums: GradientAddition,
    /// Bytes of a number of that sum.
    pub gradient_bytes: f64,
    /// Bytes of a number of a gradient while it is summed over data parallelism.
    pub reduced_bytes: f64,
    /// Where reductions over data parallelism wait for their turn; gathers too, where they are not deferred.
    pub reductions: StreamQueue,
    /// Where sends between pipeline stages wait for their turn.
    pub transfers: Transfers,
    /// Where collectives of tensor parallelism run.
    pub tensor_collectives: TensorCollectives,
    /// Inputs of products that sequence parallelism gathers, until their backward pass.
    pub gathered_inputs: GatheredInputs,
    /// The two products of a gated feed-forward block that read the same input.
    pub gated_products: GatedProducts,
    /// The logits whose loss a tensor-parallel rank computes.
    pub logits: Logits,
    /// Values that ranks reduce if they shard the optimizer but not the gradients.
    pub sharded_reductions: ShardedReductions,
    /// Values that tensor-parallel ranks send to the next stage.
    pub pipeline_tensors: PipelineTensors,
    /// Parameters that one reduction of gradients over data parallelism takes together at least, and one gather of
    /// parameters that were updated in shards: a bucket takes whole units until it has that number, or all of a rank.
    /// With 0, each unit is one.
    pub bucket_parameters: f64,
    /// The meaning of stage 2 of ZeRO.
    pub second_stage: SecondStage,
    /// When parameters are gathered that were updated in shards (ZeRO-1 and 2).
    pub updated_gathers: UpdatedGathers,
    /// When ranks update their parameters.
    pub updates: Updates,
    /// The content of one gather of parameters that are sharded throughout the step (ZeRO-3).
    pub gathers: Gathers,
    /// Bytes per parameter that copies out of such a gather's buffer move, between kernels.
    pub gather_copy_bytes: f64,
    /// Bytes that copies before a scatter of tokens and after a gather of them move per element of the whole tensor,
    /// where numbers have 2 bytes: tensors whose first dim is not that of the tokens.
    pub token_copy_bytes: f64,
    /// Memory of the results of products, norms and attention before their kernels write it.
    pub new_tensors: NewTensors,
    /// Gathers of a layer's sharded parameters per microbatch where the layer is recomputed; pleach keeps them from
    /// there to the backward pass, so that there are two.
    pub gathers_of_recomputed_layers: f64,
    /// Bytes that one parameter's update moves.
    pub update_bytes_per_parameter: f64,
    /// Bytes that the kernels of the loss move per logit, forward and backward, where the head computes all logits at
    /// once.
    pub logit_bytes_moved: f64,
    /// Bytes that the kernels of a norm's forward pass move per element beyond those of one kernel, which reads and
    /// writes each operand once. This and the next four hold for numbers of 2 bytes.
    pub norm_bytes_forward: f64,
    /// The same of its backward pass.
    pub norm_bytes_backward: f64,
    /// The same of rotating queries and keys, in either pass.
    pub rotary_bytes: f64,
    /// The same of the activation function, per element of its output.
    pub activation_bytes_forward: f64,
    /// The same of its backward pass.
    pub activation_bytes_backward: f64,
    /// The contents of its memory.
    pub memory: TrainerMemory,
    /// The layouts that it has, which are all that is planned for it.
    pub offers: Offers,
    /// Where each of the entries is from, by key.
    pub sources: BTreeMap<String, String>,
}

impl Software {
    /// How many times as many logits as it computes a rank of `tp` takes the loss of.
    pub fn logits_per_own(&self, tp: usize) -> f64 {
        match self.logits {
            Logits::Sharded => 1.0,
            Logits::Gathered => tp as f64,
        }
    }
}

/// Memory of a trainer that differs from pleach's, with that of its allocator and process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerMemory {
    /// Bytes of master weight and moments per parameter, where a rank keeps them all.
    pub optimizer_bytes: f64,
    /// Input of the second product of the feed-forward block.
    pub activation_outputs: CheapOutputs,
    /// Inputs of the first products of both blocks.
    pub norm_outputs: CheapOutputs,
    /// Bytes that a norm keeps per element beyond its input and output.
    pub norm_kept_bytes: f64,
    /// The same of the activation function, per element of its output.
    pub activation_kept_bytes: f64,
    /// Queries and keys with their positions.
    pub rotated: Rotated,
    /// Bytes kept for each element that dropout may drop.
    pub dropout_mask_bytes: f64,
    /// The treatment of a microbatch's own gradient of a weight.
    pub weight_gradients: WeightGradients,
    /// Bytes alive for each logit when most are, where the head computes all logits at once.
    pub logit_bytes: f64,
    /// Memory that the allocator reserves beyond the allocated peak, as a share of that peak.
    pub unused_share: f64,
    /// Bytes that the process has on the accelerator outside of the allocator: context, kernels, buffers of
    /// collectives.
    pub process_bytes: f64,
}

/// The treatment of an output that costs little time between the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheapOutputs {
    Kept,
    /// The backward pass recomputes it.
    ComputedAgain,
}

/// The treatment of a microbatch's own gradient of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightGradients {
    /// It is freed when it has been added to the sum, or never was.
    Freed,
    /// The product adds to the sum, and the backward graph is handed a tensor that nobody reads: one of each shape of a
    /// layer's weights, which stays.
    KeptPerShape,
    /// It stays next to the sum until the next microbatch's takes its place.
    Kept,
}

/// Where rotated queries and keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rotated {
    /// Where they were before.
    InPlace,
    /// In memory of their own; the projection stays for the values in it.
    #[serde(rename = "separate")]
    Beside,
}

/// How products of single-precision numbers are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SingleProducts {
    Full,
    /// Of numbers that are rounded to TF32, on accelerators that do that.
    Tf32,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKernels {
    /// In one kernel that stores no scores.
    Fused,
    /// Two batched products with stored scores, and kernels for softmax and dropout between them.
    Unfused,
}

/// How the head computes logits and loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKernels {
    /// By chunks of tokens, forward and backward at once.
    Chunks,
    /// Logits of all tokens at once.
    Whole,
}

/// The operations of recomputing a whole layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecomputedLayers {
    /// Values that the backward pass reads; not the last product and its sum over tensor parallelism.
    WhatIsRead,
    /// The forward pass once more.
    WholeForward,
}

/// Memory that a kernel is about to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewTensors {
    /// It has what was there before.
    Untouched,
    /// Another kernel writes it first, so that reading it too early has the same result in every run.
    Filled,
}

/// How a microbatch's gradient of the weights joins the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GradientAddition {
    /// The product adds to it.
    InTheProduct,
    /// A kernel of its own adds the product.
    Separate,
    /// A kernel copies the product in the width of the sum, and a second kernel adds the copy.
    Copied,
}

/// Where collectives of tensor parallelism run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorCollectives {
    /// Between the products.
    InLine,
    /// Inputs are gathered next to the products of gradients of inputs, these gradients are summed next to the products
    /// of gradients of weights, and a gradient that both products read is gathered once.
    #[serde(rename = "overlapped-backward")]
    BesideBackward,
    /// With sequence parallelism they overlap in chunks with the products that read or make them, forward and
    /// backward; without it as before.
    InChunks,
}

/// The input of a product, gathered from the ranks that share the tokens, until the product's backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatheredInputs {
    /// A rank keeps its own tokens, and the backward pass gathers the others again.
    GatheredAgain,
    /// All tokens stay.
    Kept,
}

/// Two products that read the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatedProducts {
    /// One product of both weights side by side.
    Joined,
    /// A product each. A kernel adds their two gradients of the input. Without sequence parallelism each of these is
    /// first summed over tensor parallelism by itself.
    Separate,
}

/// The logits whose loss a tensor-parallel rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logits {
    /// The logits of its share of the vocabulary.
    Sharded,
    /// All of them, gathered.
    Gathered,
}

/// Where sends between pipeline stages wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transfers {
    /// Computation waits for them.
    InLine,
    /// The same, and a rank receives in calls of their own, during which it does nothing else: each transfer takes the
    /// time of two.
    InLineOneByOne,
    /// They overlap with passes.
    Overlapped,
    /// They overlap with passes where ranks have several stages, and are in line where they have one.
    OverlappedIfInterleaved,
    /// They overlap with passes, but for those of 1F1B.
    #[serde(rename = "overlapped-unless-1f1b")]
    OverlappedUnlessPlain,
}

/// The meaning of stage 2 of ZeRO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecondStage {
    /// Gradients are sharded, and parameters are not.
    Gradients,
    /// Parameters are sharded as well, and stay gathered from their forward to their backward pass.
    ParametersToo,
}

/// When parameters are gathered that ranks have updated in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdatedGathers {
    /// At the end of the step.
    AfterUpdate,
    /// While the next forward pass runs, each unit's before its first use.
    Overlapped,
}

/// When ranks update their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Updates {
    /// After the norm of all gradients, for which all ranks wait.
    AfterNorm,
    /// When a rank has its own gradients, so that steps follow each other without a barrier. The norm is made during
    /// the next step, and takes back an update that it would have changed.
    BeforeNorm,
}

/// Values that ranks reduce if they shard the optimizer but not the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardedReductions {
    /// The part that each updates.
    Scattered,
    /// Everything on every rank.
    Whole,
}

/// Values that tensor-parallel ranks send to the next stage, where each of them has the whole residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipelineTensors {
    /// All of it.
    Whole,
    /// Equal parts, which the receivers gather (Narayanan et al. 2021, section 4.1).
    Scattered,
}

/// The contents of one gather of sharded parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gathers {
    /// A unit's flat buffer.
    PerUnit,
    PerTensor,
}

/// Whether a stream overlaps with computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamQueue {
    /// Computation waits for it.
    InLine,
    /// It overlaps.
    #[serde(rename = "overlapped")]
    Beside,
    /// All work that can be deferred runs after the last microbatch.
    Last,
}
