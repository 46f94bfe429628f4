//! The degrees, ZeRO stage, schedule and recomputation of a run, and the mesh that they make.

use mesh::{AxisSet, AxisSizes, Mesh, MeshError};

use crate::schedule::ScheduleSpec;

/// Which states are sharded over data parallelism (the table of ZeRO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZeroStage {
    /// Everything is replicated.
    Off,
    /// Optimizer state and master weights are sharded.
    One,
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
    /// Order of forward and backward passes.
    pub schedule: ScheduleSpec,
    /// Sequences per microbatch.
    pub microbatch_size: usize,
    /// What the backward pass computes again.
    pub recompute: Recompute,
    /// Number of layers of each stage, in forward order; `None` balances the stages by cost.
    pub stage_layers: Option<Vec<usize>>,
}

impl Parallelism {
    /// The mesh of these degrees. Ranks of one tensor-parallel group are neighbours, pipeline stages farthest apart.
    ///
    /// # Errors
    /// A degree of 0, or more ranks than a machine word counts.
    pub fn mesh(&self) -> Result<Mesh, MeshError> {
        Mesh::new(AxisSizes::dp_tp_pp(self.dp, self.tp, self.pp))
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
}
