//! A place in the mesh.

use crate::axis::{Axis, AxisSet, AxisSizes};
use std::fmt;

/// A place in a mesh: one index per axis, each below the size of the mesh along that axis.
///
/// Only a [`Mesh`](crate::Mesh) makes coordinates, so an index out of range cannot exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coord {
    pub(crate) sizes: AxisSizes,
    pub(crate) indices: [usize; 6],
}

impl Coord {
    /// The sizes of its mesh.
    pub const fn sizes(&self) -> AxisSizes {
        self.sizes
    }

    /// The index along `axis`.
    pub const fn along(&self, axis: Axis) -> usize {
        self.indices[axis.index()]
    }

    /// The position among the ranks that differ along the axes of `set`: the indices along them as
    /// one number, the innermost axis varying fastest. It equals the position in the group of `set`.
    pub fn position(&self, set: AxisSet) -> usize {
        set.iter().fold(0, |position, axis| position * self.sizes.along(axis) + self.along(axis))
    }
}

impl fmt::Display for Coord {
    /// `pp 1, dp 0, tp 1`: the two data axes as one number, and the axes that a plain run does not
    /// have only where the mesh extends along them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pp = self.along(Axis::Pp);
        write!(f, "pp {pp}, dp {}", self.position(AxisSet::DATA))?;
        for axis in [Axis::Cp, Axis::Ep] {
            if self.sizes.along(axis) > 1 {
                write!(f, ", {axis} {}", self.along(axis))?;
            }
        }
        write!(f, ", tp {}", self.along(Axis::Tp))
    }
}

impl fmt::Debug for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coord({self})")
    }
}
