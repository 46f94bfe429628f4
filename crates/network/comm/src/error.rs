//! Failures between ranks.

use crate::tag::Tag;
use device::Operation;
use mesh::Rank;
use std::time::Duration;

/// The reason why a world stopped, as the rank that failed first reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortCause {
    /// The rank that failed.
    pub rank: Rank,
    /// The cause as a clause: `panicked: index out of bounds`.
    pub description: String,
}

/// Why a communication did not happen. Every variant names the rank that reports it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// Another rank, or this one, declared the world failed.
    #[error("{rank} stopped because {by} failed: {why}")]
    Aborted {
        /// The rank that reports.
        rank: Rank,
        /// The rank that failed first.
        by: Rank,
        /// The cause.
        why: String,
    },
    /// A deadline passed.
    #[error(
        "{rank} waited {waited_ms} ms for {peer} in {operation} ({tag}): {peer} is slow, stuck or \
         running another program; see what it does, or raise run.timeout_seconds = {}", setting.as_secs_f32()
    )]
    Deadline {
        /// The rank that waited.
        rank: Rank,
        /// The first rank, in rank order, that had not done its part.
        peer: Rank,
        /// The operation of both.
        operation: Operation,
        /// Which message was awaited.
        tag: Tag,
        /// How long it waited.
        waited_ms: u64,
        /// `run.timeout_seconds`, see [`crate::Timeouts::setting`].
        setting: Duration,
    },
    /// A peer closed its transport while this rank still needed it.
    #[error("{rank} needs {peer} in {operation} ({tag}), but {peer} has ended its part of the run")]
    PeerLeft {
        /// The rank that reports.
        rank: Rank,
        /// The rank that has left.
        peer: Rank,
        /// The operation of this rank.
        operation: Operation,
        /// Which message was concerned.
        tag: Tag,
    },
    /// Two members of a group call different things at the same place of their sequence.
    #[error(
        "{rank} is in {operation} of {expected_bytes} bytes ({tag}), but {peer} is in \
         {peer_operation} of {peer_bytes} bytes: their programs differ"
    )]
    Mismatch {
        /// The rank that reports.
        rank: Rank,
        /// The rank whose message does not fit.
        peer: Rank,
        /// The operation of this rank.
        operation: Operation,
        /// The operation of the peer.
        peer_operation: Operation,
        /// Which message was concerned.
        tag: Tag,
        /// The length that this rank expects.
        expected_bytes: usize,
        /// The length that the peer sent.
        peer_bytes: usize,
    },
    /// A buffer that is to be cut into one equal slice per member does not divide.
    #[error(
        "{rank}: {operation} over {members} ranks needs equal slices, and {len} elements do not \
         divide; pad the buffer to {} elements", len.next_multiple_of(*members)
    )]
    UnequalSlices {
        /// The rank that reports.
        rank: Rank,
        /// The collective.
        operation: Operation,
        /// The length of the buffer in elements.
        len: usize,
        /// The size of the group.
        members: usize,
    },
    /// A library that does not end a collective which this rank's neighbours have begun.
    #[error(
        "{rank} waited {waited_ms} ms for the library of run.collectives = \"native\" in {operation} ({tag}), and no member \
         of the group is known to be late; use run.collectives = \"own\", or raise run.timeout_seconds"
    )]
    Library {
        /// The rank that reports.
        rank: Rank,
        /// The collective.
        operation: Operation,
        /// Which call was under way.
        tag: Tag,
        /// How long it waited.
        waited_ms: u64,
    },
    /// More members than a library counts elements.
    #[error("a group of {members} ranks is larger than MPI counts; use run.collectives = \"own\"")]
    TooManyMembers {
        /// The size of the group.
        members: usize,
    },
    /// A position outside the group.
    #[error("{rank}: position {position} is outside a group of {members} ranks")]
    NoSuchPosition {
        /// The rank that reports.
        rank: Rank,
        /// The position asked for.
        position: usize,
        /// The size of the group.
        members: usize,
    },
}
