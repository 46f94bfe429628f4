//! The places of a group's members on the nodes of a cluster.

use std::collections::BTreeMap;

use cluster::Cluster;
use mesh::{AxisSet, Mesh, PlacementOrder, Rank};

/// Where the members of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShape {
    /// Members.
    pub size: usize,
    /// Members on one node, at most.
    pub per_node: usize,
    /// Nodes that have members.
    pub nodes: usize,
    /// Accelerators of a node that communicate at the same time: all that have a rank, for all ranks do the same.
    pub beside: usize,
}

impl GroupShape {
    /// The group of rank 0 along `axes`, ranks filling nodes of `node` accelerators in `order`.
    pub fn new(mesh: &Mesh, axes: AxisSet, order: PlacementOrder, node: usize) -> GroupShape {
        GroupShape::of_members(mesh, mesh.group(Rank(0), axes).members(), order, node)
    }

    /// A group of `members`, ranks filling nodes of `node` accelerators in `order`.
    pub(crate) fn of_members(mesh: &Mesh, members: &[Rank], order: PlacementOrder, node: usize) -> GroupShape {
        let mut nodes: BTreeMap<usize, usize> = BTreeMap::new();
        for member in members {
            *nodes.entry(order.slot(mesh, *member) / node).or_default() += 1;
        }
        GroupShape {
            size: members.len(),
            per_node: nodes.values().copied().max().unwrap_or(1),
            nodes: nodes.len(),
            beside: node.min(mesh.world_size()),
        }
    }

    /// Microseconds of the start of a call.
    pub(crate) fn start_us(self, cluster: &Cluster) -> f64 {
        let (link, network) = (&cluster.node.link, &cluster.network);
        if self.nodes > 1 { network.start_us.max(link.start_us) } else { link.start_us }
    }

    /// How many share the network of a node.
    pub fn sharers(&self) -> f64 {
        self.beside as f64
    }

    /// Two ranks of the mesh, whose ranks fill nodes of `node` accelerators in `order`.
    pub fn pair(mesh: &Mesh, one: Rank, other: Rank, order: PlacementOrder, node: usize) -> GroupShape {
        let nodes = if order.slot(mesh, one) / node == order.slot(mesh, other) / node { 1 } else { 2 };
        GroupShape { size: 2, per_node: 3 - nodes, nodes, beside: node.min(mesh.world_size()) }
    }
}
