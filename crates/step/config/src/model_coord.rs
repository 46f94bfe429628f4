//! A rank's place among the ranks that hold the parameters of one stage and one replica.

use mesh::{Axis, AxisSet, Coord, Region};

use crate::params::ParamSpec;
use crate::unit_axes::UnitAxes;

/// The axes along which the ranks of one stage and one replica differ, where replicas differ along `data`.
fn stage_and_replica(data: AxisSet) -> AxisSet {
    data.with(Axis::Pp).complement()
}

/// Which part of each split parameter a rank holds, and which of the copies of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCoord(Coord);

impl ModelCoord {
    /// Of the rank at `coord`.
    pub fn new(coord: Coord) -> ModelCoord {
        ModelCoord(coord)
    }

    /// Whether the rank is the first of those with the same elements of `param`, which is of a unit with these `axes`:
    /// each copy but its own is neither counted in the global norm nor stored.
    pub fn is_first_copy(&self, param: &ParamSpec, axes: UnitAxes) -> bool {
        self.0.position(stage_and_replica(axes.data).difference(param.sharding.axes())) == 0
    }

    /// Whether the rank is the first of those that see the same tokens: losses, which these ranks have in common, are
    /// counted there.
    pub fn is_first(&self) -> bool {
        self.0.position(stage_and_replica(UnitAxes::tokens(self.0.sizes()))) == 0
    }

    /// The rank's part of `param`, as [`ParamSpec::local_box`].
    pub fn part(&self, param: &ParamSpec) -> Region {
        param.local_box(&self.0)
    }

    /// Ranks along `axes`, and this rank's position among them.
    pub fn share(&self, axes: AxisSet) -> (usize, usize) {
        (self.0.sizes().size(axes), self.0.position(axes))
    }
}
