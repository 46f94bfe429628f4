//! The positions that a rank derives from its coordinate before it reads or computes anything.

use config::Parallelism;
use mesh::{Axis, AxisSet, Coord, Mesh};
use model::initialize::TensorParallel;

use super::state::ShardPlace;

/// A rank's positions along the axes.
#[derive(Clone, Copy, Debug)]
pub struct RankPosition {
    /// Pipeline index.
    pub stage: usize,
    /// Which shard of every split parameter it holds.
    pub tensor: TensorParallel,
    /// Data-parallel position: which sequences it reads.
    pub replica: usize,
    /// Which shard it keeps of what ZeRO shards.
    pub shards: ShardPlace,
}

impl RankPosition {
    /// Of the rank at `coord` of the mesh of `parallelism`.
    pub fn new(parallelism: &Parallelism, mesh: &Mesh, coord: Coord) -> RankPosition {
        RankPosition {
            stage: coord.along(Axis::Pp),
            tensor: TensorParallel { size: parallelism.tp, position: coord.along(Axis::Tp) },
            replica: coord.position(AxisSet::DATA),
            shards: ShardPlace::new(parallelism.zero, mesh, coord),
        }
    }
}
