//! Collectives of a library among processes, such as those of MPI, instead of pleach's own.
//!
//! A library numbers processes, and a process may have several ranks of a group. So one member of each process, its
//! leader, calls the library: it adds the parts of the members of its process in rank order, the library adds those of
//! processes in an order of its own, and the leader hands the result to the members of its process. Every addition is
//! one of two `f32` values or of two integers modulo 2^64; a narrow sum is widened first and rounded once at the end.
//! The bounds of a sum of `f32` are in `docs/numerics.md`; integers and gathers have the bits of pleach's own
//! collectives.
//!
//! Buffers go through memory of fixed size, which the library has for itself: a failed run lets it go and never frees
//! it, and a rank's arena is never under a call that does not end. A leader tells the next one that it has begun, with
//! the length of its buffer, so that a member that is late or does something else is named.

mod exchange;
mod gathers;
mod member;
mod pieces;
mod sums;

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mesh::Group;
use mpi::Collective;

pub(crate) use member::LibraryMember;

/// Which sums a library makes. Gathers are the library's in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibrarySums {
    /// All: those of `f32` in an order that the library chooses.
    All,
    /// The sums of integers, which are the same in any order; `f32` sums stay in rank order.
    Integers,
}

/// The processes of one group, as a library knows them.
pub trait LibraryCommunicator: Send + Sync {
    /// Begins `collective` over `memory`, which comes back when it has ended. The sender of the channel is dropped
    /// where the run has failed. All processes make the same calls in the same order.
    fn begin(&self, collective: Collective, memory: Vec<u64>) -> Receiver<Vec<u64>>;
}

/// The part of a library that serves one group.
#[derive(Clone)]
pub struct LibraryGroup {
    /// Its processes.
    pub communicator: Arc<dyn LibraryCommunicator>,
    /// By process of the communicator: the positions of its members in the group, ascending.
    pub by_process: Vec<Vec<usize>>,
    pub sums: LibrarySums,
    /// How long a rank waits for its peers in one operation.
    pub wait: Duration,
}

/// A library that serves the groups of a rank.
pub trait Library: Send + Sync {
    /// Its part for `group` in lane `lane`; `None` where one process has all members. The same on every member.
    fn group(&self, lane: usize, group: &Group) -> Option<LibraryGroup>;
}
