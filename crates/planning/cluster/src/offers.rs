//! The layouts that a trainer has: `[offers]` of its description.

use serde::{Deserialize, Serialize};

/// The axes, schedules and stages of ZeRO of a trainer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offers {
    /// Ways to divide a model and its sequences, beyond replicas.
    pub axes: Vec<OfferedAxis>,
    /// Orders of passes on pipelines of several ranks.
    pub schedules: Vec<OfferedSchedule>,
    /// Stages of ZeRO where there are replicas, 0 for none.
    pub zero_stages: Vec<u8>,
}

/// A way to divide a model and its sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfferedAxis {
    /// Tensor parallelism.
    #[serde(rename = "tp")]
    Tensor,
    /// The residual stream is sharded over tensor-parallel ranks.
    #[serde(rename = "sp")]
    Sequence,
    /// Ranks share the tokens of a sequence.
    #[serde(rename = "cp")]
    Context,
    /// Pipeline parallelism.
    #[serde(rename = "pp")]
    Pipeline,
}

/// An order of passes, by its name in run files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfferedSchedule {
    /// All forwards, then all backwards.
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward.
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// 1F1B over several stages of each rank.
    #[serde(rename = "interleaved")]
    Interleaved,
    /// ZB-H1.
    #[serde(rename = "zb-h1")]
    ZeroBubbleH1,
    /// ZB-H2.
    #[serde(rename = "zb-h2")]
    ZeroBubbleH2,
    /// ZB-V.
    #[serde(rename = "zb-v")]
    ZeroBubbleV,
    /// Searched under a limit of memory.
    #[serde(rename = "zb-auto")]
    ZeroBubbleAuto,
}

impl Offers {
    /// Whether the trainer has this axis.
    pub fn has_axis(&self, axis: OfferedAxis) -> bool {
        self.axes.contains(&axis)
    }
}
