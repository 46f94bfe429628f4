//! Messages of another process of this machine, read in its memory.
//!
//! Linux copies from the memory of a process that this one may trace. Where it may not (another user, another namespace
//! of processes, a filter of system calls), and wherever a read fails, pieces come as from any process:
//! [`super::pieces`].
//!
//! The sender of a message may take it back and change its memory while another process still reads. It counts that in
//! [`Withdrawals`] before the memory can change, and every read ends with that count: where it is the one that was due
//! when the message was announced, all bytes were read before. The kernel copies the ranges of one call in their order.

use super::frame::MemoryPlace;
use rustix::process::{PTracer, Pid, getpid, getppid, set_ptracer};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// More than the messages that one connection ever takes back.
const ALL: u64 = 1 << 48;

/// How many messages this process has taken back on a connection, in memory that the peer reads. It does not move.
#[repr(C)]
pub(super) struct Withdrawals {
    /// Shows the peer that it reads this process.
    mark: u64,
    count: AtomicU64,
}

impl Withdrawals {
    /// None so far.
    pub(super) fn new() -> Box<Withdrawals> {
        Box::new(Withdrawals { mark: RandomState::new().hash_one(0), count: AtomicU64::new(0) })
    }

    /// Counts `messages` that the peer may still read, before their memory changes.
    pub(super) fn add(&self, messages: usize) {
        self.count.fetch_add(messages as u64, Ordering::SeqCst);
    }

    /// Ends all reads of the peer.
    pub(super) fn add_all(&self) {
        self.count.fetch_add(ALL, Ordering::SeqCst);
    }

    /// The place of this value, for the peer.
    pub(super) fn place(&self) -> MemoryPlace {
        let process = getpid().as_raw_nonzero().get().cast_unsigned();
        MemoryPlace { process, at: std::ptr::from_ref(self) as u64, mark: self.mark }
    }
}

/// Lets the processes that the parent of this one has started read the memory of this one, where a security module of
/// Linux asks for that. An error means that it does not.
pub(super) fn permit_siblings() {
    if let Some(parent) = getppid() {
        let _ = set_ptracer(PTracer::ProcessID(parent));
    }
}

/// The memory of another process.
pub(super) struct PeerMemory {
    process: Pid,
    /// Where its [`Withdrawals`] are, and their mark.
    at: u64,
    mark: u64,
}

impl PeerMemory {
    /// The memory of the process whose [`Withdrawals::place`] is given; none if this process may not read it, or if the
    /// number is that of another process here.
    pub(super) fn of(place: MemoryPlace) -> Option<PeerMemory> {
        let MemoryPlace { process, at, mark } = place;
        let process = Pid::from_raw(i32::try_from(process).ok()?)?;
        let memory = PeerMemory { process, at, mark };
        memory.read(0, &mut []).map(|_| memory)
    }

    /// Fills `bytes` with those at the address `from` of the other process. Returns how many messages it had taken back
    /// by the end; none where something could not be read.
    pub(super) fn read(&self, from: u64, bytes: &mut [u8]) -> Option<u64> {
        let mut word = [0u64; 2];
        let range = |base: u64, len: usize| libc::iovec { iov_base: base as *mut libc::c_void, iov_len: len };
        let (bytes_len, word_len) = (bytes.len(), size_of_val(&word));
        let local = [
            libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes_len },
            libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word_len },
        ];
        let remote = [range(from, bytes_len), range(self.at, word_len)];
        // SAFETY: the call writes to the ranges of `local` only, which are those of `bytes` and `word`, borrowed
        // mutably. The ranges of `remote` are addresses of another process, which the kernel checks.
        let read = unsafe {
            libc::process_vm_readv(self.process.as_raw_nonzero().get(), local.as_ptr(), 2, remote.as_ptr(), 2, 0)
        };
        let [mark, count] = word;
        (usize::try_from(read) == Ok(bytes_len + word_len) && mark == self.mark).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_ends_with_the_count_and_fails_where_there_is_no_memory() {
        let withdrawals = Withdrawals::new();
        let memory = PeerMemory::of(withdrawals.place()).expect("a process reads itself");
        let (source, mut target) = ([7u8; 100], [0u8; 100]);
        let from = source.as_ptr() as u64;
        assert_eq!(memory.read(from, &mut target), Some(0));
        assert_eq!(target, source);
        withdrawals.add(2);
        assert_eq!(memory.read(from, &mut target), Some(2));
        withdrawals.add_all();
        assert!(memory.read(from, &mut target) > Some(1 << 40));
        assert_eq!(memory.read(8, &mut target), None, "nothing is mapped there");
    }

    #[test]
    fn another_process_is_not_read() {
        let withdrawals = Withdrawals::new();
        let place = withdrawals.place();
        assert!(PeerMemory::of(MemoryPlace { mark: place.mark ^ 1, ..place }).is_none());
        assert!(PeerMemory::of(MemoryPlace { at: 8, ..place }).is_none());
        assert!(PeerMemory::of(MemoryPlace { process: 0, ..place }).is_none());
        assert!(PeerMemory::of(MemoryPlace { process: u32::MAX, ..place }).is_none());
    }
}
