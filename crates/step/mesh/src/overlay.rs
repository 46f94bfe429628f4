//! An axis whose ranks are those of other axes.

use crate::axis::{Axis, AxisSet};
use crate::grid::Mesh;
use crate::group::{Group, Rank};
use std::fmt;

/// An axis over others: its groups are made of ranks that differ along the axes below.
///
/// A mesh multiplies its axes, so an axis of its own needs ranks of its own. Experts do without:
/// the ranks that share a dense layer over `dp` and `tp` divide the experts among them. The ranks
/// along `over`, in rank order, are cut into runs of `degree` neighbours. A run is one group of
/// `axis`; the ranks at one position of their runs hold the same part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlay {
    mesh: Mesh,
    axis: Axis,
    over: AxisSet,
    degree: usize,
}

/// Why an axis does not fit over others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayError {
    /// The mesh has ranks along the axis itself.
    OwnRanks {
        /// The axis.
        axis: Axis,
        /// Ranks along it.
        size: usize,
    },
    /// The degree does not divide the ranks below.
    Degree {
        /// The axis.
        axis: Axis,
        /// Its degree.
        degree: usize,
        /// The axes below.
        over: AxisSet,
        /// Ranks along them.
        size: usize,
    },
}

impl fmt::Display for OverlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverlayError::OwnRanks { axis, size } => {
                write!(f, "the mesh must have 1 rank along {axis}, which has the ranks of other axes; got {size}")
            }
            OverlayError::Degree { axis, degree, over, size } => {
                write!(f, "{axis} = {degree} must divide the {size} ranks along {over}")
            }
        }
    }
}

impl std::error::Error for OverlayError {}

impl Overlay {
    /// `axis` with groups of `degree` ranks of `mesh` that differ along `over`.
    ///
    /// # Errors
    /// A mesh with ranks along `axis` itself, or a degree that does not divide the ranks along `over`.
    pub fn new(mesh: Mesh, axis: Axis, over: AxisSet, degree: usize) -> Result<Overlay, OverlayError> {
        let (own, size) = (mesh.size(axis), mesh.size(over));
        if own != 1 {
            return Err(OverlayError::OwnRanks { axis, size: own });
        }
        if degree == 0 || !size.is_multiple_of(degree) {
            return Err(OverlayError::Degree { axis, degree, over, size });
        }
        Ok(Overlay { mesh, axis, over, degree })
    }

    /// The axis over the others.
    pub fn axis(&self) -> Axis {
        self.axis
    }

    /// The index of `rank` along the axis.
    pub fn index(&self, rank: Rank) -> usize {
        self.position(rank) % self.degree
    }

    /// The ranks that hold the different parts, `rank` among them.
    pub fn group(&self, rank: Rank) -> Group {
        let first = self.position(rank) / self.degree * self.degree;
        self.members(rank, (first..first + self.degree).collect())
    }

    /// The ranks along the axes below that hold the same part as `rank`.
    pub fn replicas(&self, rank: Rank) -> Group {
        let size = self.mesh.size(self.over);
        self.members(rank, (self.index(rank)..size).step_by(self.degree).collect())
    }

    fn position(&self, rank: Rank) -> usize {
        self.mesh.coord(rank).position(self.over)
    }

    /// The ranks at `positions` of the group of `rank` along the axes below.
    fn members(&self, rank: Rank, positions: Vec<usize>) -> Group {
        let below = self.mesh.group(rank, self.over);
        let own = positions.iter().take_while(|position| **position < below.position()).count();
        Group::new(positions.into_iter().map(|position| below.members()[position]).collect(), own)
    }
}
