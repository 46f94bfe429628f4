//! The groups of one rank, each for one use: what engines open, and what the verifier of all ranks joins.

use std::fmt;
use std::sync::Arc;

use config::{Parallelism, UnitLayout};
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

    const fn along(axis: Axis) -> PeerGroup {
        PeerGroup::Along(AxisSet::of(axis))
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

/// The groups of every rank of a run besides the world: what layers, gathers, reductions and the tied sum join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerGroups {
    mesh: Mesh,
    list: Arc<[PeerGroup]>,
}

impl PeerGroups {
    /// The groups of the ranks of `mesh` that share matrices, tokens and layers, and those along each of the sets
    /// `declared`.
    pub fn new(mesh: Mesh, declared: impl IntoIterator<Item = AxisSet>) -> PeerGroups {
        let mut list = vec![PeerGroup::TENSOR, PeerGroup::CONTEXT];
        for which in declared.into_iter().filter(|axes| !axes.is_empty()).map(PeerGroup::Along) {
            if which != PeerGroup::PIPELINE && !list.contains(&which) {
                list.push(which);
            }
        }
        list.extend([PeerGroup::PIPELINE, PeerGroup::Ends]);
        PeerGroups { mesh, list: list.into() }
    }

    /// The groups of a run with these units: along the axes over which each of them is sharded and reduced, and those
    /// over which it is split in addition to tensor parallelism.
    pub fn of_units<'a>(
        mesh: Mesh,
        parallelism: &Parallelism,
        units: impl IntoIterator<Item = &'a UnitLayout>,
    ) -> PeerGroups {
        let of_unit = |layout: &UnitLayout| {
            let (axes, params) = (layout.axes(), || layout.segments.iter().map(|segment| &segment.param));
            let split = params().map(|param| param.sharding.axes().difference(parallelism.tensor_axes()));
            let alone = params().map(|param| config::gradient_axes(param, parallelism).difference(axes.data));
            [axes.shards, axes.replicas()].into_iter().chain(alone).chain(split).collect::<Vec<_>>()
        };
        PeerGroups::new(mesh, units.into_iter().flat_map(of_unit))
    }

    /// The ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// All of them, in the order of [`PeerGroups::index`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PeerGroup> + '_ {
        self.list.iter().copied()
    }

    /// The number of `which` among them; `None` for a group that ranks do not have.
    pub fn index(&self, which: PeerGroup) -> Option<usize> {
        self.list.iter().position(|other| *other == which)
    }

    /// The peers of `rank`.
    pub fn of(&self, rank: Rank) -> Peers {
        let group = |which| match which {
            PeerGroup::Along(axes) => self.mesh.group(rank, axes),
            PeerGroup::Ends => {
                let pipeline = self.mesh.group(rank, Axis::Pp);
                pipeline.ends().unwrap_or_else(|| pipeline.alone())
            }
        };
        Peers { groups: self.iter().map(|which| (which, group(which))).collect() }
    }
}

/// The groups with which a rank communicates, in addition to the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    groups: Vec<(PeerGroup, Group)>,
}

impl Peers {
    /// One of the groups; `None` for a group that ranks do not have.
    pub fn group(&self, which: PeerGroup) -> Option<&Group> {
        self.groups.iter().find(|(other, _)| *other == which).map(|(_, group)| group)
    }

    /// Each group and its use.
    pub fn each(&self) -> impl Iterator<Item = (PeerGroup, &Group)> {
        self.groups.iter().map(|(which, group)| (*which, group))
    }

    /// The same with `group` for the use `which`, if ranks have such a group: a fault for tests of the verifier.
    #[must_use]
    pub fn with(mut self, which: PeerGroup, group: Group) -> Peers {
        for (_, own) in self.groups.iter_mut().filter(|(other, _)| *other == which) {
            own.clone_from(&group);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ParamSpec, RunConfig, Sharding, Unit};

    /// A model without experts has the groups of its layers alone; a unit that is split over other axes adds its own.
    #[test]
    fn every_set_of_axes_that_a_unit_declares_has_a_group() {
        let RunConfig { model, parallelism, .. } = RunConfig::quick_start();
        let mesh = parallelism.mesh().expect("a mesh");
        let layout = |unit| UnitLayout::of(&model, unit, &parallelism);
        let dense: Vec<UnitLayout> = Unit::holding(model.num_layers).map(layout).collect();
        let names = |units: &[UnitLayout]| -> Vec<String> {
            PeerGroups::of_units(mesh, &parallelism, units).iter().map(|which| which.to_string()).collect()
        };
        let own = ["tensor-parallel group", "context-parallel group", "sharding group", "group of replicas"];
        assert_eq!(names(&dense), own.into_iter().chain(["pipeline", "pair of pipeline ends"]).collect::<Vec<_>>());

        let params = config::params(&model, Unit::Table);
        let split = params
            .into_iter()
            .map(|param| ParamSpec { sharding: Sharding::Split { dim: 0, axes: AxisSet::of(Axis::Cp) }, ..param });
        let split = UnitLayout::new(split.collect(), parallelism.axis_sizes(), 1);
        let more = [own[0], own[1], "group along dp_inner", "group of replicas", "pipeline", "pair of pipeline ends"];
        assert_eq!(names(&[split]), more);
        assert_eq!(PeerGroups::new(mesh, []).index(PeerGroup::Along(AxisSet::of(Axis::Ep))), None);
        assert_eq!(PeerGroup::Along(AxisSet::of(Axis::Cp).with(Axis::Tp)).to_string(), "group along cp+tp");
    }
}
