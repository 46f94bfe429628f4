//! The groups of one rank, each for one use: what engines open, and what the verifier of all ranks joins.

use mesh::{Axis, Group, Mesh, Rank};

/// With whom a rank communicates, besides the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// Ranks that share every matrix.
    pub tensor: Group,
    /// Ranks that see different sequences and among which ZeRO shards state: all of dp, or one sharding group.
    pub data: Group,
    /// Ranks that hold the same shards in other sharding groups.
    pub replicas: Group,
    /// Ranks that hold the other stages of this model replica, in pipeline order.
    pub pipeline: Group,
    /// First and last stage of this replica; a group of one between them.
    pub ends: Group,
}

/// Which of the [`Peers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerGroup {
    /// See [`Peers::tensor`].
    Tensor,
    /// See [`Peers::data`].
    Data,
    /// See [`Peers::replicas`].
    Replicas,
    /// See [`Peers::pipeline`].
    Pipeline,
    /// See [`Peers::ends`].
    Ends,
}

impl PeerGroup {
    /// Each of them.
    pub const ALL: [PeerGroup; 5] =
        [PeerGroup::Tensor, PeerGroup::Data, PeerGroup::Replicas, PeerGroup::Pipeline, PeerGroup::Ends];

    /// The word for it in messages.
    pub const fn name(self) -> &'static str {
        match self {
            PeerGroup::Tensor => "tensor-parallel group",
            PeerGroup::Data => "sharding group",
            PeerGroup::Replicas => "group of replicas",
            PeerGroup::Pipeline => "pipeline",
            PeerGroup::Ends => "pair of pipeline ends",
        }
    }
}

impl Peers {
    /// The groups of `rank` in `mesh`.
    pub fn of(mesh: &Mesh, rank: Rank) -> Peers {
        let along = |axis: Axis| mesh.group(rank, axis);
        let pipeline = along(Axis::Pp);
        Peers {
            tensor: along(Axis::Tp),
            data: along(Axis::DpInner),
            replicas: along(Axis::DpOuter),
            ends: pipeline.ends().unwrap_or_else(|| pipeline.alone()),
            pipeline,
        }
    }

    /// One of the groups.
    pub fn group(&self, which: PeerGroup) -> &Group {
        match which {
            PeerGroup::Tensor => &self.tensor,
            PeerGroup::Data => &self.data,
            PeerGroup::Replicas => &self.replicas,
            PeerGroup::Pipeline => &self.pipeline,
            PeerGroup::Ends => &self.ends,
        }
    }
}
