//! The degrees of parallelism, and the mesh that they make.

use std::fmt;

use mesh::{Axis, AxisSizes, Mesh, MeshError};

/// How many ways a run divides each kind of work.
///
/// Whoever multiplies, compares, lists or prints degrees names every field, so a new one stops the compiler there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Degrees {
    /// Replicas that see different sequences.
    pub dp: usize,
    /// Ranks that share the tokens of every sequence.
    pub cp: usize,
    /// Ranks that share every matrix.
    pub tp: usize,
    /// Ranks that hold different layers.
    pub pp: usize,
}

/// A mesh with ranks along an axis that a part of the program does not divide work along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedAxis {
    pub axis: Axis,
    /// Ranks along it.
    pub degree: usize,
    /// The part of the program, as the subject of the message.
    pub consumer: &'static str,
}

impl fmt::Display for UnsupportedAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnsupportedAxis { axis, degree, consumer } = self;
        write!(f, "{consumer} must have 1 rank along {axis}; got {degree}; use dp, cp, tp or pp")
    }
}

impl std::error::Error for UnsupportedAxis {}

impl Degrees {
    /// One rank.
    pub const ONE: Degrees = Degrees { dp: 1, cp: 1, tp: 1, pp: 1 };

    /// The degrees of `mesh`, for a `consumer` that knows no other axes.
    ///
    /// # Errors
    /// A mesh with more than one rank along another axis.
    pub fn of(mesh: &Mesh, consumer: &'static str) -> Result<Degrees, UnsupportedAxis> {
        let AxisSizes { pp, dp_outer, dp_inner, cp, ep, tp } = mesh.sizes();
        if ep > 1 {
            return Err(UnsupportedAxis { axis: Axis::Ep, degree: ep, consumer });
        }
        Ok(Degrees { dp: dp_outer * dp_inner, cp, tp, pp })
    }

    /// Name and degree, in the order in which messages list them.
    pub const fn named(self) -> [(&'static str, usize); 4] {
        let Degrees { dp, cp, tp, pp } = self;
        [("dp", dp), ("cp", cp), ("tp", tp), ("pp", pp)]
    }

    /// Returns the same as [`Degrees::named`], without context parallelism where one rank has whole sequences.
    pub fn listed(self) -> impl Iterator<Item = (&'static str, usize)> {
        self.named().into_iter().filter(|(name, degree)| *name != "cp" || *degree != 1)
    }

    /// `dp 2 tp 1 pp 4` where `separator` is a space, of [`Degrees::listed`].
    pub fn joined(self, separator: &str) -> String {
        self.listed().map(|(name, degree)| format!("{name} {degree}")).collect::<Vec<_>>().join(separator)
    }

    /// The mesh, with sharding groups of `shard_group` neighbours along dp. Ranks of one tensor-parallel group are
    /// neighbours, those that share a sequence come next, pipeline stages are farthest apart.
    ///
    /// # Errors
    /// A degree of 0, or more ranks than a machine word counts.
    pub fn mesh(self, shard_group: usize) -> Result<Mesh, MeshError> {
        Mesh::new(self.sizes(shard_group))
    }

    /// The number of ranks: 0 where a degree is 0, and the greatest number where it exceeds that.
    pub fn world_size(self) -> usize {
        self.sizes(self.dp).num_ranks().unwrap_or(usize::MAX)
    }

    /// Ranks along each axis, as [`Degrees::mesh`].
    pub fn sizes(self, shard_group: usize) -> AxisSizes {
        let Degrees { dp, cp, tp, pp } = self;
        let dp_outer = dp.checked_div(shard_group).unwrap_or(0);
        AxisSizes { pp, dp_outer, dp_inner: shard_group, cp, ep: 1, tp }
    }
}

impl fmt::Display for Degrees {
    /// `dp 2 x tp 1 x pp 4`, or `dp 2 x cp 2 x tp 1 x pp 4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined(" x "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEGREES: Degrees = Degrees { dp: 4, cp: 1, tp: 3, pp: 2 };

    #[test]
    fn sharding_groups_divide_the_replicas_alone() {
        for shard_group in [1, 2, 4] {
            let mesh = DEGREES.mesh(shard_group).map_err(|error| error.to_string());
            assert_eq!(mesh.and_then(|mesh| Degrees::of(&mesh, "").map_err(|error| error.to_string())), Ok(DEGREES));
        }
        let shared = Degrees { cp: 5, ..DEGREES };
        let of_mesh = shared.mesh(2).map(|mesh| Degrees::of(&mesh, "").map_err(|error| error.to_string()));
        assert_eq!((of_mesh, shared.world_size()), (Ok(Ok(shared)), 120));
        assert_eq!(DEGREES.world_size(), 24);
        assert_eq!(Degrees { tp: 0, ..DEGREES }.world_size(), 0);
        assert_eq!(Degrees { tp: usize::MAX, ..DEGREES }.world_size(), usize::MAX);
        assert_eq!(Degrees { tp: 0, ..DEGREES }.mesh(1), Err(MeshError::EmptyAxis(Axis::Tp)));
    }

    #[test]
    fn other_axes_are_refused_by_name() {
        let of =
            |sizes| Mesh::new(sizes).map(|mesh| Degrees::of(&mesh, "the pipeline").map_err(|error| error.to_string()));
        let message = |axis| format!("the pipeline must have 1 rank along {axis}; got 2; use dp, cp, tp or pp");
        assert_eq!(of(AxisSizes { cp: 2, ..AxisSizes::ONE }), Ok(Ok(Degrees { cp: 2, ..Degrees::ONE })));
        assert_eq!(of(AxisSizes { ep: 2, ..AxisSizes::ONE }), Ok(Err(message("ep"))));
        assert_eq!(of(AxisSizes::ONE), Ok(Ok(Degrees::ONE)));
    }

    #[test]
    fn degrees_are_listed_in_one_order() {
        assert_eq!(DEGREES.to_string(), "dp 4 x tp 3 x pp 2");
        assert_eq!(DEGREES.joined(" "), "dp 4 tp 3 pp 2");
        assert_eq!(Degrees { cp: 2, ..DEGREES }.to_string(), "dp 4 x cp 2 x tp 3 x pp 2");
    }
}
