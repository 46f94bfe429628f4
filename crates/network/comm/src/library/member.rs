//! A member of a group whose collectives a library makes: its process, its role and its waits.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use mesh::{Group, Rank};

use super::{LibraryGroup, LibrarySums};
use crate::collectives::Call;
use crate::error::CommError;
use crate::operation::Operation;
use crate::transport::Chunks;

/// How often a wait for the library looks whether the run has failed.
const GLANCE: Duration = Duration::from_millis(50);
/// How long the failure of a library takes to become that of the run.
const SETTLING: Duration = Duration::from_secs(5);
/// Bytes of the word by which a leader tells the next one the length of its buffer.
const WORD_BYTES: usize = size_of::<u64>();

/// A member of a group whose collectives a library makes.
pub(crate) struct LibraryMember {
    pub(super) library: LibraryGroup,
    /// The process of this member among those of the communicator.
    pub(super) own: usize,
    pub(super) role: Role,
    /// Memory that the library does not have at the moment.
    pub(super) spare: Mutex<Vec<Vec<u64>>>,
}

/// Who calls the library.
pub(super) enum Role {
    /// This member, for the others of its process, which are in rank order.
    Leader {
        followers: Vec<Rank>,
        /// The leaders of the previous process and of the next, counted round.
        previous: Rank,
        next: Rank,
    },
    /// The leader of its process.
    Follower { leader: Rank },
}

impl LibraryMember {
    /// The part of the member that sees `group`; `None` if no process of the library has it.
    pub(crate) fn new(library: LibraryGroup, group: &Group) -> Option<LibraryMember> {
        let processes = &library.by_process;
        let own = processes.iter().position(|members| members.contains(&group.position()))?;
        let rank = |position: &usize| group.member(*position);
        let leader = |process: usize| processes[process % processes.len()].first().and_then(rank);
        let role = if leader(own)? == group.rank() {
            let followers = processes[own].iter().skip(1).filter_map(rank).collect();
            Role::Leader { followers, previous: leader(own + processes.len() - 1)?, next: leader(own + 1)? }
        } else {
            Role::Follower { leader: leader(own)? }
        };
        Some(LibraryMember { library, own, role, spare: Mutex::default() })
    }

    /// Whether the library adds `f32` values.
    pub(crate) fn adds_reals(&self) -> bool {
        match self.library.sums {
            LibrarySums::All => true,
            LibrarySums::Integers => false,
        }
    }

    /// The positions of the members of this process.
    pub(super) fn here(&self) -> &[usize] {
        &self.library.by_process[self.own]
    }

    /// Tells the next leader that this one has begun `operation` over `len_bytes`.
    pub(super) fn announce(&self, call: &Call, operation: Operation, len_bytes: usize) -> Result<(), CommError> {
        match &self.role {
            Role::Follower { .. } => Ok(()),
            Role::Leader { next, .. } => {
                let word = (len_bytes as u64).to_ne_bytes();
                call.transport.post_copy(call.message(&[*next], operation, &word))
            }
        }
    }

    /// Waits until the previous leader has begun the same.
    pub(super) fn meet(&self, call: &Call, operation: Operation, len_bytes: usize) -> Result<(), CommError> {
        let Role::Leader { previous, .. } = self.role else { return Ok(()) };
        let mut word = [0; WORD_BYTES];
        call.receive(&[previous], operation, WORD_BYTES, &mut |offset, chunks| {
            let piece = chunks.chunk(0);
            word[offset..offset + piece.len()].copy_from_slice(piece);
        })?;
        let peer_bytes = usize::try_from(u64::from_ne_bytes(word)).unwrap_or(usize::MAX);
        if peer_bytes == len_bytes {
            return Ok(());
        }
        Err(CommError::Mismatch {
            rank: call.group.rank(),
            peer: previous,
            operation,
            peer_operation: operation,
            tag: call.tag,
            expected_bytes: len_bytes,
            peer_bytes,
        })
    }

    /// The memory of a collective that has ended.
    ///
    /// A member that is late is named by the leader after it, or by the leader of its process. One that has stopped
    /// after it has begun is found at the deadline: each leader then tells the next one that it still waits, and has as
    /// much time again to hear it from the previous one.
    pub(super) fn wait(
        &self,
        call: &Call,
        operation: Operation,
        pending: &Receiver<Vec<u64>>,
    ) -> Result<Vec<u64>, CommError> {
        let started = Instant::now();
        if let Some(memory) = self.wait_within(call, self.library.wait, pending)? {
            return Ok(memory);
        }
        let met = self.announce(call, operation, 0).and_then(|()| self.meet(call, operation, 0));
        // It may have ended meanwhile, also for a leader that had nothing to say.
        if let Ok(memory) = pending.try_recv() {
            return Ok(memory);
        }
        met?;
        let waited_ms = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let memory = self.wait_within(call, self.library.wait, pending)?;
        memory.ok_or_else(|| CommError::Library {
            rank: call.group.rank(),
            operation,
            tag: call.tag,
            waited_ms: waited_ms(),
        })
    }

    /// The memory of a collective that ends within `limit`.
    fn wait_within(
        &self,
        call: &Call,
        limit: Duration,
        pending: &Receiver<Vec<u64>>,
    ) -> Result<Option<Vec<u64>>, CommError> {
        let started = Instant::now();
        let mut limit = limit;
        while started.elapsed() < limit {
            match pending.recv_timeout(GLANCE) {
                Ok(memory) => return Ok(Some(memory)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    limit = limit.min(SETTLING);
                    std::thread::sleep(GLANCE);
                }
            }
            aborted(call)?;
        }
        Ok(None)
    }

    /// The result of a wait for the leader of this process. A leader that is late may wait itself for the one that is
    /// the cause, so it has time to name it.
    pub(super) fn of_leader(&self, call: &Call, result: Result<(), CommError>) -> Result<(), CommError> {
        if let (Err(CommError::Deadline { .. }), Role::Follower { .. }) = (&result, &self.role) {
            let started = Instant::now();
            while started.elapsed() < 2 * self.library.wait {
                aborted(call)?;
                std::thread::sleep(GLANCE);
            }
        }
        result
    }
}

fn aborted(call: &Call) -> Result<(), CommError> {
    match call.transport.failure() {
        None => Ok(()),
        Some(cause) => Err(CommError::Aborted { rank: call.group.rank(), by: cause.rank, why: cause.description }),
    }
}

/// The parts of no other members.
pub(super) struct NoChunks;

impl Chunks for NoChunks {
    fn chunk(&self, _index: usize) -> &[u8] {
        &[]
    }
}
