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

    /// Axes with the position along each, outermost first: the two data axes as one number, and the axes that a plain
    /// run does not have only where the mesh extends along them.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let plain = AxisSet::DATA.with(Axis::Pp).with(Axis::Tp);
        let is_listed = move |axes: AxisSet| !axes.intersection(plain).is_empty() || self.sizes.size(axes) > 1;
        let listed = AxisSet::NAMED.into_iter().filter(move |(_, axes)| is_listed(*axes));
        listed.map(|(name, axes)| (name, self.position(axes)))
    }
}

impl fmt::Display for Coord {
    /// `pp 1, dp 0, tp 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.named().map(|(name, place)| format!("{name} {place}")).collect();
        f.write_str(&places.join(", "))
    }
}

impl fmt::Debug for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coord({self})")
    }
}
