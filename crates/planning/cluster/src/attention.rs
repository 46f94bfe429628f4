//! Losses of an accelerator's fused attention kernels on short sequences and few heads, and their generations.

use serde::{Deserialize, Serialize};

/// Generations of fused attention kernels. Each is for an accelerator of its time, and slower on later ones than the
/// kernels of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FlashKernels {
    /// FlashAttention.
    #[serde(rename = "flash-1")]
    First,
    /// FlashAttention-2.
    #[default]
    #[serde(rename = "flash-2")]
    Second,
    /// FlashAttention-3, and those of cuDNN for the same accelerators.
    #[serde(rename = "flash-3")]
    Third,
}

impl FlashKernels {
    /// The rate of these kernels as a share of that of `best`, the generation that an accelerator's constants describe.
    /// Later generations than that run as `best`.
    pub fn rate_with(self, best: FlashKernels) -> f64 {
        (self.rate() / best.rate()).min(1.0)
    }

    /// FlashAttention-2 is 1.7 to 3.0 times faster than the first (Dao 2023, section 4.1). On an H100 kernels of cuDNN
    /// are 1.6 times faster than it at 8,192 tokens, forward and backward, and FlashAttention-3 is 1.5 to 2.0 times
    /// (Shah et al. 2024, figures 5 and 6).
    fn rate(self) -> f64 {
        match self {
            FlashKernels::First => 0.5,
            FlashKernels::Second => 1.0,
            FlashKernels::Third => 1.6,
        }
    }
}

/// The order in which a backward pass adds the terms of the gradient of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionSums {
    /// As tiles of keys are done: two runs have different bits.
    #[serde(rename = "any-order")]
    AsDone,
    /// The order of the keys: two runs have the same bits.
    InOrder,
}

/// Losses in addition to the shares of the peak that long sequences of many heads reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// The kernels that the shares are of.
    pub kernels: FlashKernels,
    /// The latest kernels that add in order, with dropout: [`AttentionSums::InOrder`].
    #[serde(default)]
    pub ordered_kernels: FlashKernels,
    /// Length of a sequence that reaches half of the share: tiles on the diagonal are computed whole, and pipelines
    /// fill and drain.
    pub ramp_tokens: f64,
    /// Multiprocessors wait at the end, for tiles of causal attention are not equally long: as long as this many tiles
    /// of [`TILE_ROWS`] rows on each of them take.
    pub tail_tiles: f64,
    /// The same of the backward pass.
    pub backward_tail_tiles: f64,
    /// FlashAttention-2, where it was measured next to later kernels. Elsewhere [`FlashKernels::rate_with`] counts.
    #[serde(rename = "flash-2", default, skip_serializing_if = "Option::is_none")]
    pub second: Option<MeasuredKernels>,
}

/// Shares of the peak of kernels that are not the best ones of an accelerator, with their own losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredKernels {
    /// Share of the peak, forward, in long sequences of many heads.
    pub efficiency: f64,
    /// The same of the backward pass.
    pub backward_efficiency: f64,
    /// [`Attention::ramp_tokens`] of these kernels.
    pub ramp_tokens: f64,
    /// [`Attention::tail_tiles`] of these kernels.
    pub tail_tiles: f64,
    /// [`Attention::backward_tail_tiles`] of these kernels.
    pub backward_tail_tiles: f64,
}

/// Rows of the tiles that [`Attention::tail_tiles`] counts.
pub const TILE_ROWS: usize = 128;

impl Attention {
    pub(crate) fn is_default(&self) -> bool {
        *self == Attention::default()
    }
}
