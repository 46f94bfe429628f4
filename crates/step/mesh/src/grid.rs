//! The mesh itself: ranks from coordinates, coordinates from ranks, and groups.

use crate::axis::{Axis, AxisSet, AxisSizes};
use crate::coord::Coord;
use crate::group::{Group, Rank};
use std::fmt;

/// The grid of all ranks of a world.
///
/// The rank number counts coordinates in row-major order of [`Axis::ALL`]: `tp` varies fastest,
/// then `ep`, `cp`, the data axes, and `pp` slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mesh {
    sizes: AxisSizes,
    world_size: usize,
}

/// Why sizes do not make a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshError {
    /// The size along an axis is zero.
    EmptyAxis(Axis),
    /// The product of the sizes does not fit a machine word.
    TooLarge(AxisSizes),
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeshError::EmptyAxis(axis) => {
                write!(f, "the mesh has 0 ranks along {axis}; an axis that is not used has size 1")
            }
            MeshError::TooLarge(sizes) => write!(
                f,
                "the product of the axis sizes {:?} exceeds {}; reduce one of them",
                sizes.array(),
                usize::MAX
            ),
        }
    }
}

impl std::error::Error for MeshError {}

impl Mesh {
    /// A mesh of the given sizes.
    ///
    /// # Errors
    /// A size of zero, or more ranks than a machine word counts.
    pub fn new(sizes: AxisSizes) -> Result<Mesh, MeshError> {
        if let Some(empty) = Axis::ALL.into_iter().find(|axis| sizes.along(*axis) == 0) {
            return Err(MeshError::EmptyAxis(empty));
        }
        let world_size = sizes.num_ranks().ok_or(MeshError::TooLarge(sizes))?;
        Ok(Mesh { sizes, world_size })
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// The sizes along the axes.
    pub fn sizes(&self) -> AxisSizes {
        self.sizes
    }

    /// The number of ranks in a group along `axes`: the product of their sizes.
    pub fn size(&self, axes: impl Into<AxisSet>) -> usize {
        self.sizes.size(axes.into())
    }

    /// The number of ranks with one index along the pipeline.
    pub fn ranks_per_stage(&self) -> usize {
        self.size(AxisSet::of(Axis::Pp).complement())
    }

    /// Every rank in ascending order.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = Rank> + use<> {
        (0..self.world_size).map(Rank)
    }

    /// The place of `rank`.
    ///
    /// # Panics
    /// When `rank` is not a rank of this mesh.
    pub fn coord(&self, rank: Rank) -> Coord {
        assert!(rank.0 < self.world_size, "{rank} is outside a mesh of {} ranks", self.world_size);
        let mut rest = rank.0;
        let mut indices = [0; 6];
        for axis in Axis::ALL.into_iter().rev() {
            let size = self.sizes.along(axis);
            indices[axis.index()] = rest % size;
            rest /= size;
        }
        let sizes = self.sizes;
        Coord { sizes, indices }
    }

    /// The rank at `coord`.
    ///
    /// # Panics
    /// When `coord` belongs to a mesh of other sizes.
    pub fn rank(&self, coord: Coord) -> Rank {
        assert_eq!(coord.sizes, self.sizes, "the coordinate belongs to another mesh");
        Rank(coord.position(AxisSet::ALL))
    }

    /// The place at the origin: index 0 along every axis.
    pub fn origin(&self) -> Coord {
        self.coord(Rank(0))
    }

    /// `coord` moved along `axis` to index `value`.
    ///
    /// # Panics
    /// When `value` is not below the size along `axis`.
    pub fn with(&self, coord: Coord, axis: Axis, value: usize) -> Coord {
        let size = self.sizes.along(axis);
        assert!(value < size, "index {value} along {axis} is outside its size {size}");
        let mut moved = coord;
        moved.indices[axis.index()] = value;
        moved
    }

    /// The ranks that equal `rank` in every coordinate but those along `axes`, as `rank` sees them.
    pub fn group(&self, rank: Rank, axes: impl Into<AxisSet>) -> Group {
        let axes = axes.into();
        let coord = self.coord(rank);
        Group::new(self.members(coord, axes), coord.position(axes))
    }

    /// All groups along `axes`: a partition of the world, ordered by their lowest rank; the members
    /// of each in ascending rank order.
    pub fn groups(&self, axes: impl Into<AxisSet>) -> Vec<Vec<Rank>> {
        let axes = axes.into();
        self.ranks()
            .map(|rank| self.coord(rank))
            .filter(|coord| coord.position(axes) == 0)
            .map(|coord| self.members(coord, axes))
            .collect()
    }

    /// Ascending, because positions count the axes outermost first, as ranks do.
    fn members(&self, coord: Coord, axes: AxisSet) -> Vec<Rank> {
        (0..self.size(axes))
            .map(|position| {
                let mut rest = position;
                let mut member = coord;
                for axis in axes.iter().rev() {
                    let size = self.sizes.along(axis);
                    member.indices[axis.index()] = rest % size;
                    rest /= size;
                }
                self.rank(member)
            })
            .collect()
    }
}
