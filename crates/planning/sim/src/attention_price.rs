//! How long fused attention takes on an accelerator.

use cluster::{AttentionSums, Cluster, FlashKernels, MeasuredKernels};

use crate::kernel::{AttentionPass, ProductFormat};
use crate::price::{memory_ns, peak_flops_per_ns};

/// The work of one call of fused attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionSize {
    pub flops: f64,
    /// Keys of a sequence.
    pub tokens: usize,
    /// Tiles of queries, of all heads and sequences.
    pub tiles: usize,
    /// Heads of all sequences.
    pub heads: usize,
    pub head_dim: usize,
}

/// Nanoseconds of a call by the `kernels` of a trainer, or by the accelerator's own.
pub(crate) fn attention_ns(
    cluster: &Cluster,
    pass: AttentionPass,
    size: AttentionSize,
    kernels: Option<(FlashKernels, AttentionSums)>,
    format: ProductFormat,
) -> f64 {
    let attention = &cluster.attention;
    let (kernels, sums) = kernels.unwrap_or((attention.kernels, AttentionSums::AsDone));
    let kernels = match sums {
        AttentionSums::AsDone => kernels,
        AttentionSums::InOrder => kernels.min(attention.ordered_kernels),
    };
    let (of, rate) = match (kernels, attention.second) {
        (FlashKernels::Second, Some(second)) => (second, 1.0),
        (FlashKernels::First | FlashKernels::Second | FlashKernels::Third, _) => {
            (best(cluster), kernels.rate_with(attention.kernels))
        }
    };
    let (share, tail) = match pass {
        AttentionPass::Forward => (of.efficiency, of.tail_tiles),
        AttentionPass::Backward => (of.backward_efficiency, of.backward_tail_tiles),
    };
    let multiprocessors = cluster.accelerator.multiprocessors as usize;
    let tokens = size.tokens as f64;
    let (busy, kept_ns) = match (pass, kernels, sums) {
        (AttentionPass::Backward, FlashKernels::Second, AttentionSums::InOrder) => {
            let groups = multiprocessors.div_ceil(size.heads.max(1));
            let kept = groups as f64 * TERM_BYTES * tokens * (size.heads * size.head_dim) as f64;
            (in_whole_waves(groups * size.heads, multiprocessors), memory_ns(cluster, kept))
        }
        (AttentionPass::Forward | AttentionPass::Backward, _, AttentionSums::AsDone | AttentionSums::InOrder) => {
            let tiles = size.tiles as f64;
            (tiles / (tiles + tail * multiprocessors as f64), 0.0)
        }
    };
    let reached = share * rate * tokens / (tokens + of.ramp_tokens) * busy;
    size.flops / (peak_flops_per_ns(&cluster.accelerator, format) * reached) + kept_ns
}

/// FlashAttention-2 adds terms of the gradient of queries in order by keeping a sum of each group of tiles of keys
/// apart, in single precision: they are cleared, and read again to be added.
const TERM_BYTES: f64 = 8.0;

/// The share of the multiprocessors that have work, where each of `groups` occupies one from begin to end: the groups
/// of a head are as few as give every multiprocessor one
/// (`csrc/flash_attn/src/flash_bwd_launch_template.h`: `run_flash_bwd_seqk_parallel`).
fn in_whole_waves(groups: usize, multiprocessors: usize) -> f64 {
    let waves = groups.div_ceil(multiprocessors).max(1);
    groups as f64 / (waves * multiprocessors) as f64
}

/// The kernels that the shares of an accelerator are of.
fn best(cluster: &Cluster) -> MeasuredKernels {
    let Cluster { attention, compute, .. } = cluster;
    MeasuredKernels {
        efficiency: compute.attention_efficiency,
        backward_efficiency: compute.attention_backward_efficiency,
        ramp_tokens: attention.ramp_tokens,
        tail_tiles: attention.tail_tiles,
        backward_tail_tiles: attention.backward_tail_tiles,
    }
}
