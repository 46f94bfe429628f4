//! The positions that a rank derives from its coordinate before it reads or computes anything.

use config::{ModelCoord, Parallelism};
use mesh::{Axis, Coord};
use model::TensorParallel;

use super::unit_state::ShardPlace;

/// A rank's positions along the axes.
#[derive(Clone, Copy, Debug)]
pub struct RankPosition {
    /// Pipeline index.
    pub stage: usize,
    /// Which parts and copies of the parameters of its stage it holds.
    pub model: ModelCoord,
    /// Its place in tensor parallelism.
    pub tensor: TensorParallel,
    /// Data-parallel position: which sequences it reads.
    pub replica: usize,
    /// Context-parallel position: which of their tokens.
    pub slice: usize,
    /// Which shard it keeps of what ZeRO shards.
    pub shards: ShardPlace,
}

impl RankPosition {
    /// Of the rank at `coord` of the mesh of `parallelism`.
    pub fn new(parallelism: &Parallelism, coord: Coord) -> RankPosition {
        let model = ModelCoord::new(coord);
        let (size, position) = model.share(parallelism.tensor_axes());
        RankPosition {
            stage: coord.along(Axis::Pp),
            model,
            tensor: TensorParallel { size, position },
            replica: coord.position(parallelism.sequence_axes()),
            slice: coord.position(parallelism.context_axes()),
            shards: ShardPlace::new(parallelism.zero, coord),
        }
    }
}
