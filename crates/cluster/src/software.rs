//! What public trainers run, fuse and overlap otherwise than pleach: `[software]` of a profile, or a file of its own.

use serde::{Deserialize, Serialize};

use crate::ProfileError;

/// The differences that change times by more than a per cent. It describes a trainer, never a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Software {
    /// Which trainer, with its version.
    pub name: String,
    /// Where what follows is from.
    pub source: String,
    /// Operations that the host issues for each kernel of pleach: views, casts, allocations and nodes of the backward graph among them.
    pub operations_per_kernel: f64,
    /// How attention is computed.
    pub attention: AttentionKernels,
    /// Bytes that the kernels between the two products of unfused attention move per score, forward, without dropout.
    pub score_bytes_forward: f64,
    /// The same backward.
    pub score_bytes_backward: f64,
    /// How the head computes logits and loss.
    pub head: HeadKernels,
    /// What recomputing a whole layer runs.
    pub recomputed_layers: RecomputedLayers,
    /// How a microbatch's gradient of the weights joins the sum.
    pub gradient_sums: GradientSums,
    /// Bytes of a number of that sum.
    pub gradient_bytes: f64,
    /// Where reductions over data parallelism wait for their turn; gathers too, where they are not put off.
    pub reductions: StreamQueue,
    /// The same of sends between pipeline stages.
    pub transfers: StreamQueue,
    /// What tensor-parallel ranks send to the next stage.
    pub pipeline_tensors: PipelineTensors,
    /// What one gather of sharded parameters brings.
    pub gathers: Gathers,
    /// Gathers of a layer's sharded parameters per microbatch where the layer is computed again; pleach keeps them from there to the backward
    /// pass, so that there are two.
    pub gathers_of_recomputed_layers: f64,
    /// Bytes that one parameter's update moves.
    pub update_bytes_per_parameter: f64,
    /// Bytes that the kernels of the loss move per logit, forward and backward, where the head computes all logits at once.
    pub logit_bytes_moved: f64,
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

/// What recomputing a whole layer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecomputedLayers {
    /// What the backward pass reads; not the last product and its sum over tensor parallelism.
    WhatIsRead,
    /// The forward pass once more.
    WholeForward,
}

/// How a microbatch's gradient of the weights joins the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GradientSums {
    /// The product adds to it.
    InTheProduct,
    /// A kernel of its own adds what the product left.
    Separate,
}

/// What tensor-parallel ranks send to the next stage, where each of them has the whole residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipelineTensors {
    /// All of it.
    Whole,
    /// Equal parts, which the receivers gather (Narayanan et al. 2021, section 4.1).
    Scattered,
}

/// What one gather of sharded parameters brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gathers {
    /// A unit's flat buffer.
    PerUnit,
    /// One tensor.
    PerTensor,
}

/// Whether a stream runs beside what computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamQueue {
    /// What computes waits for it.
    InLine,
    /// It runs beside.
    Beside,
    /// What can be put off until the last microbatch has ended is.
    Last,
}

const NAMED: &[(&str, &str)] = &[
    ("megatron-2021", include_str!("../software/megatron-2021.toml")),
    ("megatron-2022", include_str!("../software/megatron-2022.toml")),
    ("deepspeed-2022", include_str!("../software/deepspeed-2022.toml")),
    ("largescale-2022", include_str!("../software/largescale-2022.toml")),
    ("deepspeed-bf16-2022", include_str!("../software/deepspeed-bf16-2022.toml")),
];

impl Software {
    /// The names of the trainers that are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// The trainer of this name, as text; `None` for a name that is none of [`Software::names`].
    pub fn named(name: &str) -> Option<&'static str> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads what would be `[software]` of a profile.
    ///
    /// # Errors
    /// No TOML, a key too few or too many.
    pub fn from_toml(text: &str) -> Result<Software, ProfileError> {
        toml::from_str(text).map_err(|error| ProfileError::Syntax(error.to_string().trim_end().to_string()))
    }
}
