//! How long collectives take on a hierarchy of links.

use cluster::{Cluster, CollectiveLibrary};
use comm::Operation;
use device::SumTree;
use mesh::{AxisSet, Mesh, PlacementOrder, Rank};
use std::collections::BTreeMap;

use crate::mpi_collective::mpi_collective_ns;
use crate::own_collective::own_collective_ns;

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

/// Nanoseconds of one collective over `bytes`, the whole argument, all slices together, by the library that the cluster
/// has. `tree` is the order of sums, which only pleach's own collectives know.
pub fn collective_ns(cluster: &Cluster, group: GroupShape, operation: Operation, tree: SumTree, bytes: f64) -> f64 {
    match cluster.collectives {
        CollectiveLibrary::Nccl => ring_ns(cluster, group, operation, bytes),
        CollectiveLibrary::Pleach => own_collective_ns(cluster, group, operation, tree, bytes),
        CollectiveLibrary::Mpi => mpi_collective_ns(cluster, group, operation, bytes),
    }
}

/// Nanoseconds of a collective of NCCL.
///
/// A member sends to its neighbour, at most at the rate of its own link: in a ring of `n` it sends `(n - 1) / n` of the
/// argument, wherever its neighbour is. So a larger node, whose links carry what the network carried before, is never
/// slower where a link is at least as fast as an accelerator's share of the network. Between nodes the members of a
/// node each take their slice of the argument over their share of the node's network cards, which all accelerators of
/// the node use at the same time; both stages run in step, so the slower one counts. A ring of `n` has `n - 1` steps
/// (an all-reduce twice as many), one of which goes from node to node on each node. For an all-reduce a tree of `log2`
/// of the nodes is taken where that is less, as NCCL does; gathers and scatters have no tree.
fn ring_ns(cluster: &Cluster, group: GroupShape, operation: Operation, bytes: f64) -> f64 {
    let GroupShape { size, per_node, nodes, .. } = group;
    if size <= 1 {
        return 0.0;
    }
    let (link, network) = (&cluster.node.link, &cluster.network);
    let (rounds, steps_us) = match operation {
        Operation::AllReduce => match all_reduce_steps(cluster, group) {
            AllReduceSteps::Ring(us) | AllReduceSteps::Tree(us) => (2.0, us),
        },
        Operation::ReduceScatter | Operation::AllGather => (1.0, ring_us(cluster, group)),
        Operation::AllToAll => return exchange_ns(cluster, group, bytes),
        Operation::Shift => return shift_ns(cluster, group, bytes),
        Operation::Broadcast | Operation::Barrier | Operation::PointToPoint => {
            return point_to_point_ns(cluster, group, bytes);
        }
    };
    let part = |members: usize| (members - 1) as f64 / members as f64;
    let inside = part(size) * bytes * link.ns_per_byte();
    let between = part(nodes) * bytes / per_node as f64 * network.ns_per_byte() * group.sharers();
    let start_us = if nodes > 1 { network.start_us.max(link.start_us) } else { link.start_us };
    rounds * (inside.max(between) + 1000.0 * steps_us) + 1000.0 * start_us
}

/// Microseconds of the steps of half an all-reduce of NCCL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AllReduceSteps {
    /// From neighbour to neighbour.
    Ring(f64),
    /// Through a tree between nodes.
    Tree(f64),
}

/// The faster one of ring and tree.
pub(crate) fn all_reduce_steps(cluster: &Cluster, group: GroupShape) -> AllReduceSteps {
    let GroupShape { per_node, nodes, .. } = group;
    let (link, network) = (&cluster.node.link, &cluster.network);
    let ring_us = ring_us(cluster, group);
    let tree_us = 2.0 * (nodes as f64).log2() * network.latency_us + (per_node - 1) as f64 * link.latency_us;
    if nodes > 1 && tree_us < ring_us { AllReduceSteps::Tree(tree_us) } else { AllReduceSteps::Ring(ring_us) }
}

fn ring_us(cluster: &Cluster, group: GroupShape) -> f64 {
    let GroupShape { size, nodes, .. } = group;
    (size - nodes) as f64 * cluster.node.link.latency_us + (nodes - 1) as f64 * cluster.network.latency_us
}

/// Nanoseconds of an all-to-all of NCCL: sends and receives in one group. A member has a slice for each other one,
/// which leave it at most at the rate of its link; those for other nodes go over its share of the node's network cards
/// at the same time.
fn exchange_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let GroupShape { size, per_node, nodes, .. } = group;
    let (link, network) = (&cluster.node.link, &cluster.network);
    let slice = bytes / size as f64;
    let inside = (size - 1) as f64 * slice * link.ns_per_byte();
    let between = (size - per_node) as f64 * slice * network.ns_per_byte() * group.sharers();
    let (start_us, latency_us) = match nodes {
        0 | 1 => (link.start_us, link.latency_us),
        _ => (network.start_us.max(link.start_us), network.latency_us),
    };
    inside.max(between) + 1000.0 * (start_us + latency_us)
}

/// Nanoseconds of messages from each member to the next. One of a node's members sends to another node, so as many
/// share the node's network cards as the node has such groups.
pub(crate) fn shift_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, network) = (&cluster.node.link, &cluster.network);
    let inside = bytes * link.ns_per_byte() + 1000.0 * (link.start_us + link.latency_us);
    let sharers = group.sharers() / group.per_node as f64;
    let between = bytes * network.ns_per_byte() * sharers + 1000.0 * (network.start_us + network.latency_us);
    if group.nodes > 1 { inside.max(between) } else { inside }
}

/// Nanoseconds of a message from one member to another.
pub(crate) fn point_to_point_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, share) = match group.nodes {
        0 | 1 => (&cluster.node.link, 1.0),
        _ => (&cluster.network, group.beside as f64),
    };
    bytes * link.ns_per_byte() * share + 1000.0 * (link.start_us + link.latency_us)
}
