//! The algorithm that a library of collectives takes for a call, and its time on a hierarchy of links. Each operation
//! is here once for each library that is priced by formulas; pleach's own are priced by the bytes that they send.

use cluster::{Cluster, CollectiveLibrary};
use device::{Operation, SumTree};

use crate::group_shape::GroupShape;
use crate::mpi_collective::{halving_ns, mpi_all_reduce};
use crate::own_collective::own_collective_ns;

/// The name of an algorithm, and the nanoseconds that a call by it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Algorithm {
    pub(crate) name: &'static str,
    pub(crate) ns: f64,
}

/// Nanoseconds of one collective over `bytes`, the whole argument, all slices together, by the library that the cluster
/// has. `tree` is the order of sums, which only pleach's own collectives know.
pub fn collective_ns(cluster: &Cluster, group: GroupShape, operation: Operation, tree: SumTree, bytes: f64) -> f64 {
    if group.size <= 1 {
        return 0.0;
    }
    match cluster.collectives {
        CollectiveLibrary::Nccl => nccl(cluster, group, operation, bytes).ns,
        CollectiveLibrary::Pleach => own_collective_ns(cluster, group, operation, tree, bytes),
        CollectiveLibrary::Mpi => mpi(cluster, group, operation, bytes).ns,
    }
}

/// A collective of NCCL.
pub(crate) fn nccl(cluster: &Cluster, group: GroupShape, operation: Operation, bytes: f64) -> Algorithm {
    let (name, ns) = match operation {
        Operation::AllReduce => {
            let (name, steps_us) = all_reduce_steps(cluster, group);
            (name, ring_ns(cluster, group, (2.0, steps_us), bytes))
        }
        Operation::ReduceScatter | Operation::AllGather => {
            ("ring", ring_ns(cluster, group, (1.0, ring_us(cluster, group)), bytes))
        }
        Operation::AllToAll => ("direct", exchange_ns(cluster, group, bytes)),
        Operation::Shift => ("direct", shift_ns(cluster, group, bytes)),
        Operation::Barrier | Operation::PointToPoint => ("direct", point_to_point_ns(cluster, group, bytes)),
    };
    Algorithm { name, ns }
}

/// A collective of a library of MPI; see [`crate::mpi_collective`].
pub(crate) fn mpi(cluster: &Cluster, group: GroupShape, operation: Operation, bytes: f64) -> Algorithm {
    let begun = |ns| ns + 1000.0 * group.start_us(cluster);
    let (name, ns) = match operation {
        Operation::AllReduce => {
            let (name, ns) = mpi_all_reduce(cluster, group, bytes);
            (name, begun(ns))
        }
        Operation::ReduceScatter => ("recursive halving", begun(halving_ns(cluster, group, bytes))),
        Operation::AllGather => ("recursive doubling", begun(halving_ns(cluster, group, bytes))),
        Operation::AllToAll => ("Bruck's or direct", begun(mpi_exchange_ns(cluster, group, bytes))),
        Operation::Shift => ("direct", shift_ns(cluster, group, bytes)),
        Operation::Barrier | Operation::PointToPoint => ("direct", point_to_point_ns(cluster, group, bytes)),
    };
    Algorithm { name, ns }
}

/// Nanoseconds of a collective of NCCL of some rounds, whose steps take some microseconds each round.
///
/// A member sends to its neighbour, at most at the rate of its own link: in a ring of `n` it sends `(n - 1) / n` of the
/// argument, wherever its neighbour is. So a larger node, whose links carry what the network carried before, is never
/// slower where a link is at least as fast as an accelerator's share of the network. Between nodes the members of a
/// node each take their slice of the argument over their share of the node's network cards, which all accelerators of
/// the node use at the same time; both stages run in step, so the slower one counts. A ring of `n` has `n - 1` steps
/// (an all-reduce twice as many), one of which goes from node to node on each node. For an all-reduce a tree of `log2`
/// of the nodes is taken where that is less, as NCCL does; gathers and scatters have no tree.
fn ring_ns(cluster: &Cluster, group: GroupShape, (rounds, steps_us): (f64, f64), bytes: f64) -> f64 {
    let GroupShape { size, per_node, nodes, .. } = group;
    let (link, network) = (&cluster.node.link, &cluster.network);
    let part = |members: usize| (members - 1) as f64 / members as f64;
    let inside = part(size) * bytes * link.ns_per_byte();
    let between = part(nodes) * bytes / per_node as f64 * network.ns_per_byte() * group.sharers();
    rounds * (inside.max(between) + 1000.0 * steps_us) + 1000.0 * group.start_us(cluster)
}

/// The faster one of ring and tree, and the microseconds of the steps of half an all-reduce of NCCL.
fn all_reduce_steps(cluster: &Cluster, group: GroupShape) -> (&'static str, f64) {
    let GroupShape { per_node, nodes, .. } = group;
    let (link, network) = (&cluster.node.link, &cluster.network);
    let ring_us = ring_us(cluster, group);
    let tree_us = 2.0 * (nodes as f64).log2() * network.latency_us + (per_node - 1) as f64 * link.latency_us;
    if nodes > 1 && tree_us < ring_us { ("tree between nodes", tree_us) } else { ("ring", ring_us) }
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
    let latency_us = if nodes > 1 { network.latency_us } else { link.latency_us };
    inside.max(between) + 1000.0 * (group.start_us(cluster) + latency_us)
}

/// Nanoseconds of an all-to-all of a library of MPI without its start: the best of messages from each member to each
/// other one and of Bruck's algorithm.
fn mpi_exchange_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let GroupShape { size, per_node, nodes, .. } = group;
    let (link, network) = (&cluster.node.link, &cluster.network);
    let slice = bytes / size as f64;
    let (inside, between) = ((per_node - 1) as f64, (size - per_node) as f64);
    let direct = inside * (slice * link.ns_per_byte() + 1000.0 * link.latency_us)
        + between * (slice * network.ns_per_byte() * group.sharers() + 1000.0 * network.latency_us);
    // Half of all slices in each step, over the slower link where there is one.
    let rounds = (size as f64).log2().ceil();
    let (slowest_ns, latency_us) = match nodes {
        0 | 1 => (link.ns_per_byte(), link.latency_us),
        _ => (network.ns_per_byte() * group.sharers(), network.latency_us),
    };
    direct.min(rounds * (bytes / 2.0 * slowest_ns + 1000.0 * latency_us))
}

/// Nanoseconds of messages from each member to the next. One of a node's members sends to another node, so as many
/// share the node's network cards as the node has such groups.
fn shift_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, network) = (&cluster.node.link, &cluster.network);
    let inside = bytes * link.ns_per_byte() + 1000.0 * (link.start_us + link.latency_us);
    let sharers = group.sharers() / group.per_node as f64;
    let between = bytes * network.ns_per_byte() * sharers + 1000.0 * (network.start_us + network.latency_us);
    if group.nodes > 1 { inside.max(between) } else { inside }
}

/// Nanoseconds of a message from one member to another.
fn point_to_point_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, share) = match group.nodes {
        0 | 1 => (&cluster.node.link, 1.0),
        _ => (&cluster.network, group.beside as f64),
    };
    bytes * link.ns_per_byte() * share + 1000.0 * (link.start_us + link.latency_us)
}
