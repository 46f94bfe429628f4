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

use crate::group_shape::GroupShape;

/// The faster algorithm of an all-reduce, and its nanoseconds.
pub(crate) fn mpi_all_reduce(cluster: &Cluster, group: GroupShape, bytes: f64) -> (&'static str, f64) {
    let (doubling_ns, halving_ns) = (doubling_ns(cluster, group, bytes), 2.0 * halving_ns(cluster, group, bytes));
    if doubling_ns <= halving_ns { ("recursive doubling", doubling_ns) } else { ("Rabenseifner's", halving_ns) }
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
pub(crate) fn halving_ns(cluster: &Cluster, group: GroupShape, bytes: f64) -> f64 {
    let (link, network, [inside, between]) = (&cluster.node.link, &cluster.network, steps(group));
    let part = |members: usize| (members - 1) as f64 / members as f64;
    let inside_ns = part(group.per_node) * bytes * link.ns_per_byte() + inside * 1000.0 * link.latency_us;
    let bytes = bytes / group.per_node as f64;
    let between_ns = part(group.nodes) * bytes * network.ns_per_byte() * group.sharers();
    inside_ns + between_ns + between * 1000.0 * network.latency_us
}
