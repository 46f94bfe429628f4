//! How long the collectives of a library of MPI take on a hierarchy of links.
//!
//! A library chooses by length and number of members. The price is that of the best of two algorithms which all
//! libraries have (Thakur, Rabenseifner and Gropp, *Optimization of Collective Communication Operations in MPICH*,
//! 2005):
//!
//! - *recursive doubling*: all members exchange everything they have with a partner at distance 1, 2, 4, ...; `log2 n`
//!   steps;
//! - *Rabenseifner's*: a reduce-scatter that halves the buffer while the distance doubles, then the gather that undoes
//!   it; `2 log2 n` steps and `2 (n - 1) / n` of the bytes. A reduce-scatter or a gather alone is one half of it.
//!
//! An all-to-all is the best of Bruck's algorithm, `log2 n` steps of half the bytes, and of messages from each member
//! to each other one.
//!
//! Partners at short distances share a node, so the larger parts stay inside. The sums and copies of a leader for
//! the other ranks of its process are not in the price.

use cluster::Cluster;
use comm::Operation;

use crate::collective::{GroupShape, point_to_point_ns, shift_ns};

/// Nanoseconds of one collective over `bytes`, the whole argument, all slices together.
pub fn mpi_collective_ns(cluster: &Cluster, group: GroupShape, operation: Operation, bytes: f64) -> f64 {
    if group.size <= 1 {
        return 0.0;
    }
    let start_us = match group.nodes {
        0 | 1 => cluster.node.link.start_us,
        _ => cluster.network.start_us.max(cluster.node.link.start_us),
    };
    let moved_ns = match operation {
        Operation::AllReduce => match mpi_all_reduce(cluster, group, bytes) {
            MpiAlgorithm::Doubling(ns) | MpiAlgorithm::Halving(ns) => ns,
        },
        Operation::ReduceScatter | Operation::AllGather => halving_ns(cluster, group, bytes),
        Operation::Shift => return shift_ns(cluster, group, bytes),
        Operation::AllToAll => exchange_ns(cluster, group, bytes),
        Operation::Broadcast | Operation::Barrier | Operation::PointToPoint => {
            return point_to_point_ns(cluster, group, bytes);
        }
    };
    moved_ns + 1000.0 * start_us
}

/// An algorithm of an all-reduce, with its nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MpiAlgorithm {
    /// Recursive doubling.
    Doubling(f64),
    /// Rabenseifner's.
    Halving(f64),
}

/// The faster one.
pub(crate) fn mpi_all_reduce(cluster: &Cluster, group: GroupShape, bytes: f64) -> MpiAlgorithm {
    let (doubling_ns, halving_ns) = (doubling_ns(cluster, group, bytes), 2.0 * halving_ns(cluster, group, bytes));
    if doubling_ns <= halving_ns { MpiAlgorithm::Doubling(doubling_ns) } else { MpiAlgorithm::Halving(halving_ns) }
}

/// Steps inside a node, and between nodes.
fn steps(group: GroupShape) -> [f64; 2] {
    [group.per_node, group.nodes].map(|members| (members as f64).log2().ceil())
}

/// Everything in each step.
fn doubling_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, network, [inside, between]) = (&cluster.node.link, &cluster.network, steps(group));
    inside * (bytes * link.ns_per_byte() + 1000.0 * link.latency_us)
        + between * (bytes * network.ns_per_byte() * group.sharers() + 1000.0 * network.latency_us)
}

/// Half as much in each step as in the one before.
fn halving_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, network, [inside, between]) = (&cluster.node.link, &cluster.network, steps(group));
    let part = |members: usize| (members - 1) as f64 / members as f64;
    let inside_ns = part(group.per_node) * bytes * link.ns_per_byte() + inside * 1000.0 * link.latency_us;
    let bytes = bytes / group.per_node as f64;
    let between_ns = part(group.nodes) * bytes * network.ns_per_byte() * group.sharers();
    inside_ns + between_ns + between * 1000.0 * network.latency_us
}

/// A slice to each other member.
fn exchange_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
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
