//! The algorithm that a library of collectives takes for a call, by name.

use cluster::{Cluster, CollectiveLibrary};
use comm::Operation;
use comm::collectives::{COPY_LIMIT_BYTES, CollectiveShape};
use device::SumTree;
use mesh::PlacementOrder;

use crate::collective::{AllReduceSteps, GroupShape, all_reduce_steps};
use crate::mpi_collective::{MpiAlgorithm, mpi_all_reduce};
use crate::own_collective::hosts;

/// Where the names of algorithms are from.
#[derive(Clone, Copy, Debug)]
pub enum Algorithms<'a> {
    /// The library whose prices a simulated step has, on a cluster whose nodes are filled in this order.
    Priced(&'a Cluster, PlacementOrder),
    /// Pleach's own collectives, between ranks that fill hosts of `per_host` ranks in this order.
    Own {
        /// Ranks of a host.
        per_host: usize,
        /// Who shares a host.
        order: PlacementOrder,
    },
    /// A library that does not tell.
    Unknown,
}

impl Algorithms<'_> {
    /// The order in which ranks fill nodes, and the ranks of a node.
    pub(crate) fn nodes(&self) -> (PlacementOrder, usize) {
        match self {
            Algorithms::Priced(cluster, order) => (*order, cluster.node.accelerators),
            Algorithms::Own { per_host, order } => (*order, *per_host),
            Algorithms::Unknown => (PlacementOrder::TpDpPp, usize::MAX),
        }
    }

    /// `all-reduce, ring`; of a library that does not tell, the operation.
    pub(crate) fn name(&self, group: GroupShape, operation: Operation, tree: SumTree, bytes: usize) -> String {
        let algorithm = match self {
            Algorithms::Priced(cluster, _) => match cluster.collectives {
                CollectiveLibrary::Nccl => nccl(cluster, group, operation).into(),
                CollectiveLibrary::Pleach => own(group, operation, tree, bytes),
                CollectiveLibrary::Mpi => mpi(cluster, group, operation, bytes).into(),
            },
            Algorithms::Own { .. } => own(group, operation, tree, bytes),
            Algorithms::Unknown => return operation.name().into(),
        };
        format!("{}, {algorithm}", operation.name())
    }
}

/// The algorithm of NCCL, by name.
fn nccl(cluster: &Cluster, group: GroupShape, operation: Operation) -> &'static str {
    match operation {
        Operation::AllReduce => match all_reduce_steps(cluster, group) {
            AllReduceSteps::Ring(_) => "ring",
            AllReduceSteps::Tree(_) => "tree between nodes",
        },
        Operation::ReduceScatter | Operation::AllGather => "ring",
        Operation::AllToAll
        | Operation::Shift
        | Operation::Broadcast
        | Operation::Barrier
        | Operation::PointToPoint => "direct",
    }
}

/// The algorithm of pleach's own collectives; see [`comm::collectives`].
fn own(group: GroupShape, operation: Operation, tree: SumTree, bytes: usize) -> String {
    let members = hosts(group);
    let waits =
        |operation| CollectiveShape { operation, len: bytes, width_bytes: 1, hosts: &members, tree }.waits_between();
    let relayed = || if waits(Operation::AllGather) { "one copy to each host" } else { "direct" };
    match operation {
        Operation::AllReduce if bytes > COPY_LIMIT_BYTES => {
            format!("reduce-scatter, {}, and all-gather, {}", in_runs(group, tree), relayed())
        }
        Operation::AllReduce | Operation::Barrier if waits(operation) => "through the first member".into(),
        Operation::ReduceScatter => in_runs(group, tree),
        Operation::AllGather | Operation::Broadcast => relayed().into(),
        Operation::AllReduce
        | Operation::Barrier
        | Operation::AllToAll
        | Operation::Shift
        | Operation::PointToPoint => "direct".into(),
    }
}

fn in_runs(group: GroupShape, tree: SumTree) -> String {
    tree.run_in(group.size).map_or("direct".into(), |run| format!("in runs of {run}"))
}

/// The algorithm of a library of MPI, as it is priced.
fn mpi(cluster: &Cluster, group: GroupShape, operation: Operation, bytes: usize) -> &'static str {
    match operation {
        Operation::AllReduce => match mpi_all_reduce(cluster, group, bytes as f64) {
            MpiAlgorithm::Doubling(_) => "recursive doubling",
            MpiAlgorithm::Halving(_) => "Rabenseifner's",
        },
        Operation::ReduceScatter => "recursive halving",
        Operation::AllGather => "recursive doubling",
        Operation::AllToAll => "Bruck's or direct",
        Operation::Shift | Operation::Broadcast | Operation::Barrier | Operation::PointToPoint => "direct",
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use mesh::{Axis, AxisSizes, Mesh, Rank};

    use super::*;

    fn group(size: usize, per_node: usize) -> GroupShape {
        let mesh = Mesh::new(AxisSizes::only(Axis::DpInner, size)).expect("a mesh");
        let members: Vec<Rank> = mesh.ranks().collect();
        GroupShape::of_members(&mesh, &members, PlacementOrder::TpDpPp, per_node)
    }

    #[test]
    fn algorithms_are_those_that_are_priced() {
        let dgx = Cluster::from_toml(cluster::named("a100-80g-dgx").expect("a profile")).expect("legal");
        let mpi = Cluster { collectives: CollectiveLibrary::Mpi, ..dgx.clone() };
        let of = |cluster, group, operation, bytes| {
            Algorithms::Priced(cluster, PlacementOrder::default()).name(group, operation, SumTree::RANK_ORDER, bytes)
        };
        assert_eq!(of(&dgx, group(8, 8), Operation::AllReduce, 1 << 20), "all-reduce, ring");
        assert_eq!(of(&dgx, group(512, 8), Operation::AllReduce, 1 << 20), "all-reduce, tree between nodes");
        assert_eq!(of(&dgx, group(512, 8), Operation::AllGather, 1 << 20), "all-gather, ring");
        assert_eq!(of(&mpi, group(8, 8), Operation::AllReduce, 8), "all-reduce, recursive doubling");
        assert_eq!(of(&mpi, group(8, 8), Operation::AllReduce, 1 << 30), "all-reduce, Rabenseifner's");
        assert_eq!(of(&mpi, group(2, 1), Operation::PointToPoint, 8), "send and receive, direct");
    }

    #[test]
    fn own_collectives_are_named_by_length_members_and_hosts() {
        let own = Algorithms::Own { per_host: 8, order: PlacementOrder::default() };
        let of = |group, operation, tree, bytes| own.name(group, operation, tree, bytes);
        let order = SumTree::RANK_ORDER;
        assert_eq!(of(group(8, 8), Operation::AllReduce, order, 64), "all-reduce, direct");
        assert_eq!(of(group(64, 8), Operation::AllReduce, order, 64), "all-reduce, through the first member");
        assert_eq!(
            of(group(16, 8), Operation::AllReduce, order, 1 << 24),
            "all-reduce, reduce-scatter, direct, and all-gather, one copy to each host"
        );
        assert_eq!(of(group(8, 8), Operation::AllGather, order, 1 << 24), "all-gather, direct");
        let runs = SumTree::of_runs(NonZeroUsize::new(4).expect("a number"));
        assert_eq!(of(group(8, 4), Operation::ReduceScatter, runs, 1 << 24), "reduce-scatter, in runs of 4");
        assert_eq!(Algorithms::Unknown.name(group(8, 4), Operation::AllGather, order, 8), "all-gather");
    }
}
