//! Who waits for the sockets of a process: its own thread, or a rank that waits anyhow.
//!
//! The sockets are in one epoll instance. A thread of the process waits for that instance by another one
//! ([`Role::outer`]); a rank that takes the role silences the outer one and waits for the sockets itself, so that each
//! event wakes one thread. The role is a lock: it is tried and never waited for, and its holder handles all events that
//! it takes.

use super::sockets::{Sockets, wait};
use crate::threads::remote::Poll;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread::ThreadId;
use std::time::Duration;

use sync::lock;

/// The role of one process.
pub(super) struct Role {
    /// None before the world is open and after its end.
    sockets: Mutex<Option<Sockets>>,
    /// Watches all sockets.
    inner: OwnedFd,
    /// Watches `inner` while no rank has the role.
    outer: OwnedFd,
    /// Ends a wait for `inner`.
    wake: OwnedFd,
    /// The rank that has the role.
    poller: Mutex<Option<ThreadId>>,
    /// Whether a rank wants the role that the thread has.
    is_wanted: AtomicBool,
}

impl Role {
    /// The role of waiting for what `inner` watches.
    ///
    /// # Errors
    /// The system's, where it has no descriptor left.
    pub(super) fn new(inner: OwnedFd) -> Result<Role, Errno> {
        let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&outer, &inner, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sockets, poller) = (Mutex::default(), Mutex::default());
        Ok(Role { sockets, inner, outer, wake, poller, is_wanted: AtomicBool::new(false) })
    }

    /// Watches all sockets.
    pub(super) fn inner(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    /// Readable after [`Role::wake`].
    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Gives the holder of the role its work; none ends it.
    pub(super) fn set(&self, sockets: Option<Sockets>) -> Option<Sockets> {
        std::mem::replace(&mut *lock(&self.sockets), sockets)
    }

    /// Ends the wait of the holder, or the next one.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Wakes as [`Role::wake`] does, unless the calling thread is the rank that has the role.
    pub(super) fn poke(&self) {
        if *lock(&self.poller) != Some(std::thread::current().id()) {
            self.wake();
        }
    }

    /// Waits until no rank has the role and there is something to do, at most for `timeout`; works until nothing is
    /// left, or a rank wants the role. Returns how long to wait next.
    pub(super) fn turn_of_thread(&self, timeout: Option<Duration>) -> Result<Option<Duration>, Errno> {
        wait(&self.outer, timeout)?;
        loop {
            let Some(mut sockets) = self.try_lock() else { return Ok(timeout) };
            let Some(sockets) = sockets.as_mut() else { return Ok(None) };
            let next = sockets.turn(Duration::ZERO)?;
            if !sockets.has_more() {
                return Ok(next);
            }
            if self.is_wanted.swap(false, Ordering::Relaxed) {
                // The rank may have what it waited for, and not take the role.
                self.wake();
                return Ok(next);
            }
        }
    }

    /// The role, for a rank that waits; none while another one has it. The thread leaves it soon where it has it.
    pub(super) fn take_for_rank(&self) -> Option<LockedRole<'_>> {
        let Some(sockets) = self.try_lock() else {
            self.is_wanted.store(true, Ordering::Relaxed);
            return None;
        };
        sockets.is_some().then(|| {
            *lock(&self.poller) = Some(std::thread::current().id());
            self.watch(epoll::EventFlags::empty());
            LockedRole { role: self, sockets }
        })
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Sockets>>> {
        match self.sockets.try_lock() {
            Ok(sockets) => Some(sockets),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sets the events that wake the thread.
    fn watch(&self, flags: epoll::EventFlags) {
        let _ = epoll::modify(&self.outer, &self.inner, epoll::EventData::new_u64(0), flags);
    }
}

/// The role, locked by a rank.
pub(super) struct LockedRole<'a> {
    role: &'a Role,
    sockets: MutexGuard<'a, Option<Sockets>>,
}

impl Poll for LockedRole<'_> {
    fn poll(&mut self, wait: Duration) {
        if let Some(sockets) = self.sockets.as_mut()
            && let Err(error) = sockets.turn(wait)
        {
            sockets.fail_all(error);
        }
    }
}

impl Drop for LockedRole<'_> {
    fn drop(&mut self) {
        *lock(&self.role.poller) = None;
        self.role.watch(epoll::EventFlags::IN);
        if self.sockets.as_ref().is_some_and(|sockets| sockets.has_more() || sockets.has_deadline()) {
            self.role.wake();
        }
    }
}
