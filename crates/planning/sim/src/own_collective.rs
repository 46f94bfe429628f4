//! How long pleach's own collectives take on a hierarchy of links: the bytes are those of
//! [`comm::collectives::traffic`].

use cluster::Cluster;
use comm::GroupHosts;
use comm::collectives::{COPY_LIMIT_BYTES, CollectiveAlgorithm, CollectiveShape, traffic};
use device::{Operation, SumTree};

use crate::group_shape::GroupShape;

/// Nanoseconds of one collective over `bytes`, the whole argument, all slices together, with sums in the order of
/// `tree`.
///
/// Without runs and relays a member sends everything at once, and the slower of its two links counts. A relay sends
/// inside its node what came from another, and partial sums leave a run when it has added them: there both links count.
/// Each such wait is a step.
pub fn own_collective_ns(cluster: &Cluster, group: GroupShape, operation: Operation, tree: SumTree, bytes: f64) -> f64 {
    let hosts = hosts(group);
    let moved = |operation| {
        moved_ns(
            cluster,
            group,
            &CollectiveShape { operation, len: bytes.round() as usize, width_bytes: 1, hosts: &hosts, tree },
        )
    };
    let moved_ns = if operation == Operation::AllReduce && bytes > COPY_LIMIT_BYTES as f64 {
        moved(Operation::ReduceScatter) + moved(Operation::AllGather)
    } else {
        moved(operation)
    };
    moved_ns + 1000.0 * group.start_us(cluster)
}

fn moved_ns(cluster: &Cluster, group: GroupShape, shape: &CollectiveShape) -> f64 {
    let (link, network) = (&cluster.node.link, &cluster.network);
    let sent = traffic(shape, 0);
    let inside_ns = sent.inside.bytes as f64 * link.ns_per_byte();
    let between_ns = sent.between.bytes as f64 * network.ns_per_byte() * group.sharers();
    let step_us = if group.nodes > 1 { network.latency_us } else { link.latency_us };
    match shape.algorithm() {
        CollectiveAlgorithm::Direct => inside_ns.max(between_ns) + 1000.0 * step_us,
        CollectiveAlgorithm::InRuns(_) | CollectiveAlgorithm::OverHosts | CollectiveAlgorithm::OverFirst => {
            inside_ns + between_ns + 2000.0 * step_us
        }
    }
}

/// Members that fill nodes one after the other.
pub(crate) fn hosts(group: GroupShape) -> GroupHosts {
    let GroupShape { size, per_node, nodes, .. } = group;
    let filled = |node: usize| per_node.min(size.saturating_sub(node * per_node));
    GroupHosts::filled(&(0..nodes).map(filled).filter(|members| *members > 0).collect::<Vec<_>>())
}
