//! The degrees, ZeRO stage, schedule and recomputation of a run, and the mesh that they make.

use mesh::{Axis, AxisSet, AxisSizes, Mesh, MeshError};

use crate::zero::ZeroStage;

/// The order of compute cells on pipeline ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleKind {
    /// All forwards, then all backwards.
    GPipe,
    /// One forward, one backward, with a flush (PipeDream-Flush).
    OneForwardOneBackward,
}

/// Which activations are computed again in the backward pass instead of kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// All are kept.
    None,
    /// Only each layer's input is kept.
    Full,
}

/// How a run is spread over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// Replicas that see different sequences.
    pub dp: usize,
    /// Ranks that share every matrix.
    pub tp: usize,
    /// Ranks that hold different layers.
    pub pp: usize,
    /// What data parallelism shards.
    pub zero: ZeroStage,
    /// Replicas among which it is sharded; `None` for all of them. Groups hold copies of the same shards.
    pub shard_group: Option<usize>,
    /// Order of forward and backward passes.
    pub schedule: ScheduleKind,
    /// Sequences per microbatch.
    pub microbatch_size: usize,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Number of layers of each stage; `None` balances the stages by cost.
    pub stage_layers: Option<Vec<usize>>,
}

impl Parallelism {
    /// The mesh of these degrees. Ranks of one tensor-parallel group are neighbours, pipeline stages farthest apart.
    ///
    /// # Errors
    /// A degree of 0, or more ranks than a machine word counts.
    pub fn mesh(&self) -> Result<Mesh, MeshError> {
        let dp_inner = self.shard_group();
        let dp_outer = self.dp.checked_div(dp_inner).unwrap_or(0);
        Mesh::new(AxisSizes { dp_outer, dp_inner, ..AxisSizes::dp_tp_pp(self.dp, self.tp, self.pp) })
    }

    /// Replicas that share one copy of what ZeRO shards: neighbours along dp. All, where nothing is sharded.
    pub fn shard_group(&self) -> usize {
        match self.zero {
            ZeroStage::Off => self.dp,
            ZeroStage::One | ZeroStage::Two { .. } | ZeroStage::Three { .. } => self.shard_group.unwrap_or(self.dp),
        }
    }

    /// `dp * tp * pp`.
    pub fn world_size(&self) -> usize {
        self.dp * self.tp * self.pp
    }

    /// Microbatches per step and replica: `global_batch / (dp * microbatch_size)`.
    pub fn num_microbatches(&self, global_batch: usize) -> usize {
        global_batch / (self.dp * self.microbatch_size)
    }

    /// The axes along which ranks see different sequences.
    pub fn data_axes() -> AxisSet {
        AxisSet::DATA
    }

    /// The axes along which ranks hold different shards of what ZeRO shards.
    pub fn shard_axes() -> AxisSet {
        AxisSet::of(Axis::DpInner)
    }
}
