//! The groups of one rank, each for one use: what engines open, and what the verifier of all ranks joins.

use std::fmt;

use mesh::{Axis, AxisSet, Group, Mesh, Rank};

/// One of the groups of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerGroup {
    /// Ranks that differ along these axes.
    Along(AxisSet),
    /// First and last stage of a model replica; a group of one between them.
    Ends,
}

impl PeerGroup {
    /// Ranks that share every matrix.
    pub const TENSOR: PeerGroup = PeerGroup::along(Axis::Tp);
    /// Ranks that share the tokens of every sequence, in the order of their positions.
    pub const CONTEXT: PeerGroup = PeerGroup::along(Axis::Cp);
    /// Ranks that see different tokens and among which ZeRO shards state: all of dp, or one sharding group, each with
    /// the ranks that share its sequences.
    pub const SHARDS: PeerGroup = PeerGroup::Along(AxisSet::of(Axis::DpInner).with(Axis::Cp));
    /// Ranks that hold the same shards in other sharding groups; a group of one where all of dp is one.
    pub const REPLICAS: PeerGroup = PeerGroup::along(Axis::DpOuter);
    /// Ranks that hold the stages of one model replica, in pipeline order.
    pub const PIPELINE: PeerGroup = PeerGroup::along(Axis::Pp);
    /// Every rank. No [`Peers`] list it.
    pub const WORLD: PeerGroup = PeerGroup::Along(AxisSet::ALL);

    /// Those that every rank has besides the world.
    pub const ALL: [PeerGroup; 6] = [
        PeerGroup::TENSOR,
        PeerGroup::CONTEXT,
        PeerGroup::SHARDS,
        PeerGroup::REPLICAS,
        PeerGroup::PIPELINE,
        PeerGroup::Ends,
    ];

    const fn along(axis: Axis) -> PeerGroup {
        PeerGroup::Along(AxisSet::of(axis))
    }

    /// Its index in [`PeerGroup::ALL`]; `None` for a group that ranks do not have.
    pub fn index(self) -> Option<usize> {
        PeerGroup::ALL.iter().position(|other| *other == self)
    }
}

impl fmt::Display for PeerGroup {
    /// The words for it in messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PeerGroup::TENSOR => f.write_str("tensor-parallel group"),
            PeerGroup::CONTEXT => f.write_str("context-parallel group"),
            PeerGroup::SHARDS => f.write_str("sharding group"),
            PeerGroup::REPLICAS => f.write_str("group of replicas"),
            PeerGroup::PIPELINE => f.write_str("pipeline"),
            PeerGroup::WORLD => f.write_str("world"),
            PeerGroup::Ends => f.write_str("pair of pipeline ends"),
            PeerGroup::Along(axes) => write!(f, "group along {axes}"),
        }
    }
}

/// With whom a rank communicates, besides the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// In the order of [`PeerGroup::ALL`].
    groups: [Group; PeerGroup::ALL.len()],
}

impl Peers {
    /// The groups of `rank` in `mesh`.
    pub fn of(mesh: &Mesh, rank: Rank) -> Peers {
        let group = |which| match which {
            PeerGroup::Along(axes) => mesh.group(rank, axes),
            PeerGroup::Ends => {
                let pipeline = mesh.group(rank, Axis::Pp);
                pipeline.ends().unwrap_or_else(|| pipeline.alone())
            }
        };
        Peers { groups: PeerGroup::ALL.map(group) }
    }

    /// One of the groups; `None` for a group that ranks do not have.
    pub fn group(&self, which: PeerGroup) -> Option<&Group> {
        self.groups.get(which.index()?)
    }

    /// Each group and its use.
    pub fn each(&self) -> impl Iterator<Item = (PeerGroup, &Group)> {
        PeerGroup::ALL.into_iter().zip(&self.groups)
    }

    /// The same with `group` for the use `which`, if ranks have such a group: a fault for tests of the verifier.
    #[must_use]
    pub fn with(mut self, which: PeerGroup, group: Group) -> Peers {
        if let Some(own) = which.index().and_then(|index| self.groups.get_mut(index)) {
            *own = group;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::RunConfig;

    #[test]
    fn every_set_of_axes_that_a_layout_names_has_a_group() {
        let layout = RunConfig::quick_start().parallelism;
        for axes in [layout.tensor_axes(), layout.context_axes(), layout.shard_axes(), layout.replica_axes()] {
            assert!(PeerGroup::Along(axes).index().is_some(), "{axes}");
        }
        assert_eq!(PeerGroup::Along(AxisSet::of(Axis::Ep)).index(), None);
        assert_eq!(PeerGroup::Along(AxisSet::of(Axis::Cp).with(Axis::Tp)).to_string(), "group along cp+tp");
    }
}
