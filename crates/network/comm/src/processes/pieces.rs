//! Memory in which pieces of messages of other processes arrive: a fixed number of places of one size.
//!
//! The memory is an anonymous file that other processes of the machine map, too. Each place belongs to at most one
//! [`Piece`]. A peer writes a place only between the grant that names it and the frame that says it is written; the
//! receiver makes a slice of it only after that frame. Peers have proven that they hold the token of the world before
//! they get the file ([`super::gate`]), so they are trusted as threads are. Nobody else has it: it has no name, and
//! what it holds needs no seal of frames. A seal of the file keeps it from shrinking under a reader.

use super::frame::PIECE_BYTES;
use crate::threads::inbox::{Inbox, Interrupted, Liveness};
use crate::threads::remote::Polling;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sync::{Mutex, lock};

/// All places of one process.
pub(super) struct Pieces {
    file: OwnedFd,
    memory: MmapRaw,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<u32>,
    /// Who waits for how many places, first come, first served: a receive over many senders must not starve.
    waiting: VecDeque<Waiter>,
    next_waiter: u64,
}

struct Waiter {
    id: u64,
    count: usize,
    inbox: Arc<Inbox>,
}

/// One place. Dropping it frees it.
pub(super) struct Piece {
    pieces: Arc<Pieces>,
    slot: u32,
}

impl Pieces {
    /// Maps `count` places.
    ///
    /// # Errors
    /// The system's, where it has no such memory left.
    pub(super) fn new(count: u32) -> io::Result<Arc<Pieces>> {
        let file = memfd_create("pleach-pieces", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let len = count as usize * PIECE_BYTES;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = MmapOptions::new().len(len).map_raw(&file)?;
        let state = State { free: (0..count).rev().collect(), ..State::default() };
        Ok(Arc::new(Pieces { file, memory, state: Mutex::new(state) }))
    }

    /// The file of the places, for a process of this machine.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// `count` places, if they are free and nobody waits for some.
    pub(super) fn try_take(self: &Arc<Pieces>, count: usize) -> Option<Vec<Piece>> {
        let mut state = lock(&self.state);
        if !state.waiting.is_empty() {
            return None;
        }
        self.take_from(&mut state, count)
    }

    fn take_from(self: &Arc<Pieces>, state: &mut State, count: usize) -> Option<Vec<Piece>> {
        let first = state.free.len().checked_sub(count)?;
        let taken = state.free.drain(first..);
        Some(taken.map(|slot| Piece { pieces: Arc::clone(self), slot }).collect())
    }

    /// `count` places at once, as soon as that many are free. Whoever has places gives them back without waiting for
    /// other ranks of this process, so no two receives wait for each other.
    pub(super) fn take(
        self: &Arc<Pieces>,
        count: usize,
        inbox: &Arc<Inbox>,
        (wait, polling): (Duration, &mut Polling<'_>),
        world: &dyn Liveness,
    ) -> Result<Vec<Piece>, Interrupted> {
        if let Some(taken) = self.try_take(count) {
            return Ok(taken);
        }
        let mut state = lock(&self.state);
        let id = state.next_waiter;
        state.next_waiter += 1;
        state.waiting.push_back(Waiter { id, count, inbox: Arc::clone(inbox) });
        drop(state);
        let taken = std::sync::Mutex::new(None);
        let waited = inbox.wait_for((wait, polling), world, || {
            let mut state = lock(&self.state);
            if state.waiting.front().is_some_and(|first| first.id == id) {
                *lock(&taken) = self.take_from(&mut state, count);
            }
            lock(&taken).is_some()
        });
        lock(&self.state).waiting.retain(|waiter| waiter.id != id);
        self.wake_first();
        waited?;
        Ok(sync::into_inner(taken).unwrap_or_default())
    }

    /// Wakes the first waiter, if there are places enough for it.
    fn wake_first(&self) {
        let state = lock(&self.state);
        let free = state.free.len();
        let first = state.waiting.front().filter(|first| first.count <= free).map(|first| Arc::clone(&first.inbox));
        drop(state);
        if let Some(inbox) = first {
            inbox.wake_from_completion();
        }
    }
}

impl Piece {
    /// The number of the place.
    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: slots are below the number of places, so the result is inside the mapping.
        unsafe { self.pieces.memory.as_mut_ptr().add(self.slot as usize * PIECE_BYTES) }
    }

    /// The first `len` bytes of the place.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the place is inside the mapping and initialised (files begin as zeros); it belongs to this value,
        // which is borrowed, and the peer that had it granted has reported that it is written (top of this file).
        unsafe { std::slice::from_raw_parts(self.start(), len.min(PIECE_BYTES)) }
    }

    /// The first `len` bytes of the place, to write.
    pub(super) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`; the value is borrowed mutably, and its place was granted to a peer that writes to a
        // socket, not here.
        unsafe { std::slice::from_raw_parts_mut(self.start(), len.min(PIECE_BYTES)) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        lock(&self.pieces.state).free.push(self.slot);
        self.pieces.wake_first();
    }
}

/// The places of another process of this machine.
pub(super) struct Window {
    memory: MmapRaw,
    count: u32,
}

impl Window {
    /// Maps the places of a peer.
    ///
    /// # Errors
    /// A file that could shrink, or that has no whole place; the system's errors.
    pub(super) fn map(file: &OwnedFd) -> io::Result<Window> {
        let seals = fcntl_get_seals(file)?;
        let len = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        let count = u32::try_from(len / PIECE_BYTES as u64).unwrap_or(0);
        if !seals.contains(SealFlags::SHRINK) || count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file of its pieces is not sealed or empty"));
        }
        let memory = MmapOptions::new().len(count as usize * PIECE_BYTES).map_raw(file)?;
        Ok(Window { memory, count })
    }

    /// Writes `bytes` to the start of a place that the peer has granted; false if it has no such place.
    pub(super) fn write(&self, slot: u32, bytes: &[u8]) -> bool {
        if slot >= self.count || bytes.len() > PIECE_BYTES {
            return false;
        }
        // SAFETY: the place is inside the mapping, as just checked; the peer has granted it and does not read it before
        // the frame that is sent after this. Source and target are different mappings.
        unsafe {
            let place = self.memory.as_mut_ptr().add(slot as usize * PIECE_BYTES);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        true
    }
}

/// Peers that neither fail nor leave.
#[cfg(test)]
struct NoFailures;

#[cfg(test)]
impl Liveness for NoFailures {
    fn has_failed(&self) -> bool {
        false
    }

    fn has_left(&self, _: mesh::Rank) -> bool {
        false
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_window_writes_where_a_piece_reads() {
        let pieces = Pieces::new(4).unwrap();
        let window = Window::map(&pieces.file().try_clone_to_owned().unwrap()).unwrap();
        let taken = pieces.try_take(2).unwrap();
        assert!(window.write(taken[1].slot(), &[5; 100]));
        assert_eq!(taken[1].bytes(101), [&[5; 100][..], &[0]].concat());
        assert!(!window.write(4, &[1]));
        assert!(pieces.try_take(3).is_none());
        drop(taken);
        assert_eq!(pieces.try_take(4).unwrap().len(), 4);
    }

    #[test]
    fn who_waits_first_is_served_first() {
        let pieces = Pieces::new(4).unwrap();
        let inbox = Arc::new(Inbox::new(1));
        let held = pieces.try_take(4).unwrap();
        let wait = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let polling = &mut Polling::new(None);
                pieces.take(4, &inbox, (wait, polling), &NoFailures).map(|taken| taken.len())
            });
            while lock(&pieces.state).waiting.is_empty() {
                std::thread::yield_now();
            }
            let mut held = held;
            held.truncate(1);
            assert!(pieces.try_take(1).is_none(), "three are free, and promised");
            drop(held);
            assert!(matches!(taker.join().unwrap(), Ok(4)));
        });
        let held = pieces.try_take(1).unwrap();
        let no_time = (Duration::ZERO, &mut Polling::new(None));
        assert!(matches!(pieces.take(4, &inbox, no_time, &NoFailures), Err(Interrupted::Deadline(..))));
        assert_eq!(pieces.try_take(3).unwrap().len(), 3, "who waits no more is forgotten");
        drop(held);
    }

    #[test]
    fn a_file_that_may_shrink_is_refused() {
        let file = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, PIECE_BYTES as u64).unwrap();
        assert!(Window::map(&file).is_err());
    }
}

/// A model of the places: in every order of threads that shuttle draws each place has one owner, each receive is
/// served, and all places come back. `tools/check-threads.sh models` runs it.
#[cfg(all(test, shuttle))]
mod models {
    use sync::shuttle::{check_pct, check_random};
    use sync::thread;

    use super::*;

    const ORDERS: usize = 5000;

    /// Takes places twice and marks them as its own.
    fn receive(pieces: &Arc<Pieces>, count: usize, mark: u8) {
        let inbox = Arc::new(Inbox::new(1));
        for _ in 0..2 {
            let (wait, polling) = (Duration::from_secs(600), &mut Polling::new(None));
            let Ok(mut taken) = pieces.take(count, &inbox, (wait, polling), &NoFailures) else { panic!("not served") };
            assert_eq!(taken.len(), count);
            taken.iter_mut().for_each(|piece| piece.bytes_mut(1)[0] = mark);
            thread::yield_now();
            assert!(taken.iter().all(|piece| piece.bytes(1) == [mark]), "another has the place");
        }
    }

    #[test]
    fn each_place_has_one_owner_and_comes_back() {
        let run = || {
            let pieces = Pieces::new(2).unwrap();
            let receivers = [(2, 1), (1, 2), (1, 3)].map(|(count, mark)| {
                let pieces = Arc::clone(&pieces);
                thread::spawn(move || receive(&pieces, count, mark))
            });
            receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
            assert_eq!(pieces.try_take(2).map(|taken| taken.len()), Some(2));
        };
        check_random(run, ORDERS);
        check_pct(run, ORDERS, 3);
    }
}
