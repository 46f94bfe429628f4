//! A rank on a GPU, as the executor and the layers see it: streams that communicate while others compute, and
//! collectives over the GPU's memory.
//!
//! - [`RankDevice`] hands work of streams with a thread of their own to that thread, and all else to the device at
//!   once.
//! - [`StagedCommunicator`] copies what is communicated to memory of the host and back, over any transport.
//! - [`PeerCommunicator`] joins ranks of one process on one GPU: kernels and copies read the arenas of the others in
//!   place.
//!
//! - [`NcclCommunicator`] joins ranks of which each has a GPU of its own, by NCCL.
//!
//! All communicators give the bits of [`comm::HostCommunicator`]. No kernel of our own waits for another rank: a rank
//! meets the others on the host, and its stream then waits for events that they have recorded.

mod event_keeper;
mod failure;
mod nccl;
mod peer;
mod peer_kernels;
mod rank_device;
mod rank_streams;
mod staged;
mod staging;

pub use event_keeper::EventKeeper;
pub use failure::{named, on_gpu, remedy};
pub use nccl::{NCCL_RANK_BYTES, NcclCommunicator, NcclError, NcclGroup, NcclGroups, NcclRank, Neighbours};
pub use peer::{PeerCommunicator, PeerLanes};
pub use peer_kernels::{COLLECTIVES, MAX_MEMBERS, PeerKernels};
pub use rank_device::RankDevice;
pub use rank_streams::{QueueOrder, RankStreams};
pub use staged::StagedCommunicator;
pub use staging::{STAGING_BYTES, Staging};
