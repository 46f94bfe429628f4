//! The types of a profile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Attention, Constant, Software, StreamQueue};

/// A cluster: equal nodes of equal accelerators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// A description in one line.
    pub about: String,
    /// The library that joins tensors of its accelerators.
    #[serde(default, skip_serializing_if = "CollectiveLibrary::is_default")]
    pub collectives: CollectiveLibrary,
    /// One accelerator, as its data sheet has it.
    pub accelerator: Accelerator,
    /// How much of that programs get, and what a kernel costs besides.
    pub compute: Compute,
    /// Losses of fused attention on short sequences and few heads.
    #[serde(default, skip_serializing_if = "Attention::is_default")]
    pub attention: Attention,
    /// The accelerators of one node.
    pub node: Node,
    /// From node to node, for all accelerators of a node together.
    pub network: Link,
    /// Constants that were fitted to measured runs, by table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fitted: BTreeMap<String, Vec<Constant>>,
    /// Differences between the trainer of the predicted runs and pleach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<Software>,
    /// Where the numbers of each section are from.
    pub sources: BTreeMap<String, String>,
}

/// The library whose collectives ranks use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveLibrary {
    /// NCCL or a relative: rings, and trees between nodes.
    #[default]
    Nccl,
    /// Pleach's own, between threads and processes: direct in a node, through one member of each other node between
    /// nodes, sums in the order of `parallelism.sum_tree`.
    Pleach,
    /// The library of MPI: the best of recursive doubling and of halving and doubling. Runs with `run.collectives =
    /// "native"` have it where the profile has pleach's own.
    Mpi,
}

impl CollectiveLibrary {
    fn is_default(&self) -> bool {
        *self == CollectiveLibrary::default()
    }
}

/// The data sheet of an accelerator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    pub name: String,
    /// Memory that its driver reports, in units of 10^9 bytes: an accelerator of "80 GB" has more than 80 x 10^9 bytes.
    pub memory_gb: f64,
    /// Bandwidth of the memory, in 10^9 bytes per second.
    pub memory_gb_per_s: f64,
    /// Dense matrix products of 16-bit numbers, in 10^12 floating-point operations per second.
    pub half_tflops: f64,
    /// The same of single-precision numbers, each product in full.
    pub single_tflops: f64,
    /// The same of single-precision numbers that are rounded to TF32 before they are multiplied, where the
    /// accelerator does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32_tflops: Option<f64>,
    /// Bandwidth of copies between pinned memory of the host and the accelerator, one way, as programs measure it, in
    /// 10^9 bytes per second. Only state that is offloaded passes this link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_link_gb_per_s: Option<f64>,
    /// The 16-bit numbers that it multiplies.
    #[serde(default, skip_serializing_if = "HalfFormats::is_default")]
    pub half_formats: HalfFormats,
    /// Multiprocessors, each of which works on one tile of a product at a time.
    pub multiprocessors: u32,
    /// Whether collectives and sends overlap with computation.
    pub streams: StreamQueue,
}

/// The 16-bit numbers that an accelerator multiplies at its full rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HalfFormats {
    /// Both.
    #[default]
    #[serde(rename = "bf16-fp16")]
    Both,
    /// Those with more digits and a smaller range.
    #[serde(rename = "fp16")]
    Fp16,
}

impl HalfFormats {
    fn is_default(&self) -> bool {
        *self == HalfFormats::default()
    }
}

impl Accelerator {
    /// Bandwidth of [`Accelerator::host_link_gb_per_s`] where a profile has none: that of PCIe 4.0 with 16 lanes, of
    /// whose 31.5 GB/s copies of large pieces reach 24 to 26.
    pub const USUAL_HOST_LINK_GB_PER_S: f64 = 25.0;

    /// Nanoseconds in which a byte passes the link to the host, one way.
    pub fn host_link_ns_per_byte(&self) -> f64 {
        1.0 / self.host_link_gb_per_s.unwrap_or(Accelerator::USUAL_HOST_LINK_GB_PER_S)
    }

    /// Its memory in bytes: what a rank may use at most, for every command.
    pub fn memory_bytes(&self) -> f64 {
        self.memory_gb * 1e9
    }
}

/// Constants of computing that no data sheet prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Share of the peak that multiprocessors sustain in the inner loop of the largest tile: what clock, power and
    /// instruction issue leave.
    pub matrix_efficiency: f64,
    /// Filling and draining a tile's pipeline takes as long as this many columns of its depth.
    pub tile_ramp_columns: f64,
    /// Share of the rate of products whose rows are whole cache lines that others reach: those that are whole vectors
    /// only.
    pub unaligned_efficiency: f64,
    /// Share of the peak that a fused attention kernel sustains, forward, in long sequences of many heads.
    pub attention_efficiency: f64,
    /// The same of its backward pass.
    pub attention_backward_efficiency: f64,
    /// Share of the memory's bandwidth that kernels reach that only move data.
    pub memory_efficiency: f64,
    /// From the end of a kernel to the start of the next.
    pub kernel_gap_us: f64,
    /// Time that the host needs to issue an operation: the least time between two, however short they are.
    pub issue_us: f64,
    /// Share by which computing takes longer while collectives run next to it.
    pub contention: f64,
}

/// Accelerators of a node and what connects them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// How many.
    pub accelerators: usize,
    /// From one to the others, one direction, per accelerator.
    pub link: Link,
}

/// A link in one direction: a collective of `s` steps, in which a member sends `n` bytes together, takes
/// `start + s x latency + n / (bandwidth x efficiency)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bandwidth in 10^9 bytes per second.
    pub gb_per_s: f64,
    /// Share of it that large messages reach.
    pub efficiency: f64,
    /// Until a collective runs on all of its members.
    pub start_us: f64,
    /// Time of one of its steps that moves nothing.
    pub latency_us: f64,
}

impl Link {
    /// Nanoseconds for one byte of a large message.
    pub fn ns_per_byte(&self) -> f64 {
        1.0 / (self.gb_per_s * self.efficiency)
    }
}
