//! Failures of NCCL, with ranks, numbers and a remedy.

use std::time::Duration;

use comm::{CommError, Operation};
use device::DeviceError;
use mesh::{Group, Rank};
use nvidia::nccl::CollectiveError;
use thiserror::Error;

/// Why a call over NCCL did not happen. A peer that is lost, late on the host or in another call is a
/// [`comm::CommError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NcclError {
    /// A call that did not end.
    #[error(
        "{rank} waited {waited_ms} ms for NCCL in {operation} of {peers}, which have begun it: a GPU or a link of theirs is slow or \
         stuck; see what they do, write run.gpu_collectives = \"host\", or raise run.timeout_seconds = {}",
        setting.as_secs_f32()
    )]
    Late {
        /// The rank that waited.
        rank: Rank,
        /// The call.
        operation: Operation,
        /// The members of the group.
        peers: String,
        /// How long it waited.
        waited_ms: u64,
        /// `run.timeout_seconds`.
        setting: Duration,
    },
    /// A group without a communicator.
    #[error(
        "{rank} has not met {peers} over NCCL, which joins the groups of a run and neighbours in pipelines; write \
         run.gpu_collectives = \"host\""
    )]
    NotMet {
        /// The rank that calls.
        rank: Rank,
        /// The others.
        peers: String,
    },
    /// A call that failed.
    #[error(
        "{rank}: NCCL failed in {operation} of {peers}: {cause}; see the systems' logs and NCCL's own (NCCL_DEBUG=WARN), or write \
         run.gpu_collectives = \"host\""
    )]
    Failed {
        /// The rank that reports.
        rank: Rank,
        /// The call.
        operation: String,
        /// The members of the group.
        peers: String,
        /// The library's reason.
        cause: CollectiveError,
    },
}

/// `ranks 0, 1 and 5`, or `8 ranks, 0 to 14`.
pub(super) fn named(group: &Group) -> String {
    let members: Vec<String> = group.members().iter().map(|rank| rank.0.to_string()).collect();
    match members.as_slice() {
        [some @ .., last] if (2..=4).contains(&members.len()) => format!("ranks {} and {last}", some.join(", ")),
        [first, .., last] => format!("{} ranks, {first} to {last}", members.len()),
        [one] => format!("rank {one}"),
        [] => "no rank".into(),
    }
}

/// A failure of the host's transport as one of the device.
pub(super) fn failed(error: CommError) -> DeviceError {
    DeviceError::Communication(Box::new(error))
}
