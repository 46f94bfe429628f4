//! A rank's place among the ranks that hold the parameters of one stage and one replica.

use mesh::{Axis, AxisSet, Coord};

use crate::parallelism::Parallelism;
use crate::params::ParamSpec;

/// Which part of each split parameter a rank holds, and which of the copies of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCoord {
    coord: Coord,
    /// The axes along which these ranks differ.
    axes: AxisSet,
}

impl ModelCoord {
    /// Of the rank at `coord` of the mesh of `parallelism`.
    pub fn new(parallelism: &Parallelism, coord: Coord) -> ModelCoord {
        ModelCoord { coord, axes: parallelism.data_axes().with(Axis::Pp).complement() }
    }

    /// Whether the rank is the first of those with the same elements of `param`: each copy but its own is neither
    /// counted in the global norm nor stored.
    pub fn is_first_copy(&self, param: &ParamSpec) -> bool {
        self.coord.position(self.axes.difference(param.sharding.axes())) == 0
    }

    /// Whether the rank is the first of all: losses, which these ranks have in common, are counted there.
    pub fn is_first(&self) -> bool {
        self.coord.position(self.axes) == 0
    }

    /// Global `(row, col)` of the rank's first element of `param`.
    pub fn start(&self, param: &ParamSpec) -> (usize, usize) {
        param.local_start(&self.coord)
    }

    /// Ranks along `axes`, and this rank's position among them.
    pub fn share(&self, axes: AxisSet) -> (usize, usize) {
        (self.coord.sizes().size(axes), self.coord.position(axes))
    }
}
