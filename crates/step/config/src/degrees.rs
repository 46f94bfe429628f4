//! The degrees of parallelism, and the mesh that they make.

use std::fmt;

use mesh::{Axis, AxisSizes, Mesh};

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

/// A mesh with ranks along an axis that a part of the program does not divide work along together with its other axes.
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
        write!(f, "{consumer} must have 1 rank along {axis} where it has several along cp or tp; got {degree}; use 1")
    }
}

impl std::error::Error for UnsupportedAxis {}

impl Degrees {
    /// One rank.
    pub const ONE: Degrees = Degrees { dp: 1, cp: 1, tp: 1, pp: 1 };

    /// The degrees of `mesh`, for a `consumer`. Ranks that divide experts are a part of dp.
    ///
    /// # Errors
    /// A mesh with more than one rank along ep that has ranks along cp or tp, too.
    pub fn of(mesh: &Mesh, consumer: &'static str) -> Result<Degrees, UnsupportedAxis> {
        let AxisSizes { pp, dp_outer, dp_inner, cp, ep, tp } = mesh.sizes();
        if ep > 1 && cp * tp > 1 {
            return Err(UnsupportedAxis { axis: Axis::Ep, degree: ep, consumer });
        }
        Ok(Degrees { dp: dp_outer * dp_inner * ep, cp, tp, pp })
    }

    /// Name and degree, in the order in which messages list them.
    pub const fn named(self) -> [(&'static str, usize); 4] {
        let Degrees { dp, cp, tp, pp } = self;
        [("dp", dp), ("cp", cp), ("tp", tp), ("pp", pp)]
    }

    /// `dp, cp, tp or pp`, where the last is joined by `last`.
    pub fn names(last: &str) -> String {
        let [others @ .., (pp, _)] = Degrees::ONE.named();
        format!("{} {last} {pp}", others.map(|(name, _)| name).join(", "))
    }

    /// Returns the same as [`Degrees::named`], without context parallelism where one rank has whole sequences.
    pub fn listed(self) -> impl Iterator<Item = (&'static str, usize)> {
        self.named().into_iter().filter(|(name, degree)| *name != "cp" || *degree != 1)
    }

    /// `dp 2 tp 1 pp 4` where `separator` is a space, of [`Degrees::listed`].
    pub fn joined(self, separator: &str) -> String {
        self.listed().map(|(name, degree)| format!("{name} {degree}")).collect::<Vec<_>>().join(separator)
    }

    /// The number of ranks: 0 where a degree is 0, and the greatest number where it exceeds that.
    pub fn world_size(self) -> usize {
        self.sizes(self.dp).num_ranks().unwrap_or(usize::MAX)
    }

    /// Ranks along each axis, with sharding groups of `shard_group` neighbours along dp. Ranks of one tensor-parallel
    /// group are neighbours, those that share a sequence come next, pipeline stages are farthest apart.
    pub fn sizes(self, shard_group: usize) -> AxisSizes {
        self.sizes_with_experts(shard_group, 1)
    }

    /// Ranks along each axis, where `ep` neighbours along dp, a divisor of `shard_group`, divide experts: these are a
    /// part of dp with an axis of their own.
    pub fn sizes_with_experts(self, shard_group: usize, ep: usize) -> AxisSizes {
        let Degrees { dp, cp, tp, pp } = self;
        let [dp_outer, dp_inner] =
            [(dp, shard_group), (shard_group, ep)].map(|(all, of)| all.checked_div(of).unwrap_or(0));
        AxisSizes { pp, dp_outer, dp_inner, cp, ep, tp }
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
    use mesh::MeshError;

    use super::*;

    const DEGREES: Degrees = Degrees { dp: 4, cp: 1, tp: 3, pp: 2 };

    #[test]
    fn sharding_groups_divide_the_replicas_alone() {
        for shard_group in [1, 2, 4] {
            let mesh = Mesh::new(DEGREES.sizes(shard_group)).map_err(|error| error.to_string());
            assert_eq!(mesh.and_then(|mesh| Degrees::of(&mesh, "").map_err(|error| error.to_string())), Ok(DEGREES));
        }
        let shared = Degrees { cp: 5, ..DEGREES };
        let of_mesh = Mesh::new(shared.sizes(2)).map(|mesh| Degrees::of(&mesh, "").map_err(|error| error.to_string()));
        assert_eq!((of_mesh, shared.world_size()), (Ok(Ok(shared)), 120));
        assert_eq!(DEGREES.world_size(), 24);
        assert_eq!(Degrees { tp: 0, ..DEGREES }.world_size(), 0);
        assert_eq!(Degrees { tp: usize::MAX, ..DEGREES }.world_size(), usize::MAX);
        assert_eq!(Mesh::new(Degrees { tp: 0, ..DEGREES }.sizes(1)), Err(MeshError::EmptyAxis(Axis::Tp)));
    }

    #[test]
    fn experts_are_divided_over_a_part_of_the_replicas() {
        let sizes = Degrees { tp: 1, dp: 8, ..DEGREES }.sizes_with_experts(4, 2);
        assert_eq!(sizes, AxisSizes { pp: 2, dp_outer: 2, dp_inner: 2, ep: 2, ..AxisSizes::ONE });
    }

    #[test]
    fn axes_that_are_not_supported_together_are_refused_by_name() {
        let of =
            |sizes| Mesh::new(sizes).map(|mesh| Degrees::of(&mesh, "the pipeline").map_err(|error| error.to_string()));
        let message =
            "the pipeline must have 1 rank along ep where it has several along cp or tp; got 2; use 1".to_string();
        assert_eq!(of(AxisSizes { cp: 2, ..AxisSizes::ONE }), Ok(Ok(Degrees { cp: 2, ..Degrees::ONE })));
        assert_eq!(of(AxisSizes { ep: 2, dp_inner: 3, ..AxisSizes::ONE }), Ok(Ok(Degrees { dp: 6, ..Degrees::ONE })));
        assert_eq!(of(AxisSizes { ep: 2, tp: 2, ..AxisSizes::ONE }), Ok(Err(message.clone())));
        assert_eq!(of(AxisSizes { ep: 2, cp: 2, ..AxisSizes::ONE }), Ok(Err(message)));
        assert_eq!(of(AxisSizes::ONE), Ok(Ok(Degrees::ONE)));
    }

    #[test]
    fn degrees_are_listed_in_one_order() {
        assert_eq!(DEGREES.to_string(), "dp 4 x tp 3 x pp 2");
        assert_eq!(DEGREES.joined(" "), "dp 4 tp 3 pp 2");
        assert_eq!(Degrees { cp: 2, ..DEGREES }.to_string(), "dp 4 x cp 2 x tp 3 x pp 2");
    }
}
