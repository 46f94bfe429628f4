//! Memory that one thread lends to others.
//!
//! The argument: a [`BorrowedBytes`] remembers the place of borrowed bytes after the borrow itself is gone from its
//! type. Each one holds its [`Ticket`] open from creation to drop. [`lending`] creates them only inside a scope that
//! outlives them: it does not return, nor unwind, before its ticket is closed, and the borrow outlives the call of
//! `lending`. So while a `BorrowedBytes` exists, its bytes are borrowed.

use super::inbox::Inbox;
use std::marker::PhantomData;
use std::sync::Arc;

use sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts the messages of one send that have not been read, or taken back, yet.
pub(crate) struct Ticket {
    open: AtomicUsize,
    /// Whether a receiver left without reading its message.
    lost: AtomicBool,
    /// Where the sender waits.
    owner: Arc<Inbox>,
}

impl Ticket {
    pub(crate) fn new(owner: Arc<Inbox>) -> Arc<Ticket> {
        Arc::new(Ticket { open: AtomicUsize::new(0), lost: AtomicBool::new(false), owner })
    }

    /// Whether no message is left to be read. Reads by others happen before a true answer.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Whether a message was dropped unread since the last call, because its receiver left.
    pub(crate) fn take_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) && self.lost.swap(false, Ordering::Relaxed)
    }

    /// Opens the ticket for one more message, until the result is dropped.
    pub(crate) fn hold(self: &Arc<Ticket>) -> Hold {
        self.open.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::clone(self))
    }
}

/// Keeps a ticket open. Dropping it may wake the sender: drop it outside of any inbox lock.
pub(crate) struct Hold(Arc<Ticket>);

impl Hold {
    pub(crate) fn is_of(&self, ticket: &Arc<Ticket>) -> bool {
        Arc::ptr_eq(&self.0, ticket)
    }

    /// Notes that the message is about to be dropped unread. The drop publishes it.
    pub(crate) fn lose(&self) {
        self.0.lost.store(true, Ordering::Relaxed);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Release) == 1 {
            self.0.owner.wake_from_completion();
        }
    }
}

/// Bytes borrowed from another thread's stack frame or buffer.
pub(crate) struct BorrowedBytes {
    bytes: *const [u8],
    hold: Hold,
}

// SAFETY: a `BorrowedBytes` only reads bytes that stay borrowed, shared, while it exists (module comment).
unsafe impl Send for BorrowedBytes {}
// SAFETY: as for `Send`; shared reading from several threads is what a shared borrow allows.
unsafe impl Sync for BorrowedBytes {}

impl BorrowedBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `self` exists, so its ticket is open, so the scope that borrowed the bytes has
        // not ended (module comment), and the result does not outlive `self`.
        unsafe { &*self.bytes }
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }
}

/// A scope in which bytes that live for `'a` can be lent.
pub(crate) struct LendingScope<'a> {
    ticket: Arc<Ticket>,
    /// Invariant in `'a`, so that no shorter borrow passes for one of `'a`.
    borrows: PhantomData<&'a mut &'a [u8]>,
}

impl<'a> LendingScope<'a> {
    pub(crate) fn lend(&self, bytes: &'a [u8]) -> BorrowedBytes {
        BorrowedBytes { bytes, hold: self.ticket.hold() }
    }

    pub(crate) fn ticket(&self) -> &Arc<Ticket> {
        &self.ticket
    }
}

/// Runs `scope` with a place to lend bytes from and returns only when nobody can read them.
///
/// `take_back` is called once `scope` has ended, also by a panic; it must see to it that messages not yet taken by
/// their receivers are dropped. Receivers read the remaining messages at this moment and wait for nobody, so the last
/// wait needs no deadline.
pub(crate) fn lending<'a, R>(
    ticket: Arc<Ticket>,
    take_back: impl Fn(&Arc<Ticket>),
    scope: impl FnOnce(&LendingScope<'a>) -> R,
) -> R {
    struct End<'a, F: Fn(&Arc<Ticket>)>(LendingScope<'a>, F);
    impl<F: Fn(&Arc<Ticket>)> Drop for End<'_, F> {
        fn drop(&mut self) {
            let ticket = &self.0.ticket;
            if !ticket.is_closed() {
                // A panic here would unwind past open loans, so it must not unwind at all.
                let aborts_on_unwind = AbortProcess;
                (self.1)(ticket);
                ticket.owner.wait_until_closed(ticket);
                std::mem::forget(aborts_on_unwind);
            }
        }
    }
    let lending = LendingScope { ticket, borrows: PhantomData };
    let end = End(lending, take_back);
    scope(&end.0)
}

struct AbortProcess;

impl Drop for AbortProcess {
    fn drop(&mut self) {
        std::process::abort();
    }
}
