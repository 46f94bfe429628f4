//! The degrees of parallelism, and the mesh that they make.

use std::fmt;

use mesh::AxisSizes;

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

impl Degrees {
    /// One rank.
    pub const ONE: Degrees = Degrees { dp: 1, cp: 1, tp: 1, pp: 1 };

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
    use mesh::{Axis, Mesh, MeshError};

    use super::*;

    const DEGREES: Degrees = Degrees { dp: 4, cp: 1, tp: 3, pp: 2 };

    #[test]
    fn sharding_groups_divide_the_replicas_alone() {
        for shard_group in [1, 2, 4] {
            let AxisSizes { pp, dp_outer, dp_inner, cp, ep, tp } = DEGREES.sizes(shard_group);
            assert_eq!((dp_outer * dp_inner, dp_inner, [pp, cp, ep, tp]), (4, shard_group, [2, 1, 1, 3]));
        }
        assert_eq!(Degrees { cp: 5, ..DEGREES }.world_size(), 120);
        assert_eq!(DEGREES.world_size(), 24);
        assert_eq!(Degrees { tp: 0, ..DEGREES }.world_size(), 0);
        assert_eq!(Degrees { tp: usize::MAX, ..DEGREES }.world_size(), usize::MAX);
        assert_eq!(Mesh::new(Degrees { tp: 0, ..DEGREES }.sizes(1)), Err(MeshError::EmptyAxis(Axis::Tp)));
    }

    #[test]
    fn experts_are_divided_over_a_part_of_the_replicas() {
        let sizes = Degrees { dp: 8, ..DEGREES }.sizes_with_experts(4, 2);
        assert_eq!(sizes, AxisSizes { pp: 2, dp_outer: 2, dp_inner: 2, cp: 1, ep: 2, tp: 3 });
    }

    #[test]
    fn degrees_are_listed_in_one_order() {
        assert_eq!(DEGREES.to_string(), "dp 4 x tp 3 x pp 2");
        assert_eq!(DEGREES.joined(" "), "dp 4 tp 3 pp 2");
        assert_eq!(Degrees { cp: 2, ..DEGREES }.to_string(), "dp 4 x cp 2 x tp 3 x pp 2");
    }
}
