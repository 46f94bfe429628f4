//! The same functions over two kinds of locks: those of shuttle in the files that are modelled, the standard library's
//! in all others.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A mutex.
pub trait Lock {
    /// Its value while it is locked.
    type Guard<'a>
    where
        Self: 'a;

    /// Locks it.
    fn locked(&self) -> Self::Guard<'_>;
}

impl<T: ?Sized> Lock for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn locked(&self) -> Self::Guard<'_> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Lock for shuttle::sync::Mutex<T> {
    type Guard<'a>
        = shuttle::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn locked(&self) -> Self::Guard<'_> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Lock + ?Sized> Lock for Arc<M> {
    type Guard<'a>
        = M::Guard<'a>
    where
        M: 'a;

    fn locked(&self) -> Self::Guard<'_> {
        (**self).locked()
    }
}

/// A condition for holders of the guard `G`.
pub trait Wait<G> {
    /// Waits for a notification.
    fn waited(&self, guard: G) -> G;

    /// The same with a deadline, which shuttle's conditions do not have.
    fn waited_for(&self, guard: G, timeout: Duration) -> G;
}

impl<'a, T> Wait<std::sync::MutexGuard<'a, T>> for std::sync::Condvar {
    fn waited(&self, guard: std::sync::MutexGuard<'a, T>) -> std::sync::MutexGuard<'a, T> {
        self.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    fn waited_for(&self, guard: std::sync::MutexGuard<'a, T>, timeout: Duration) -> std::sync::MutexGuard<'a, T> {
        self.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<'a, T> Wait<shuttle::sync::MutexGuard<'a, T>> for shuttle::sync::Condvar {
    fn waited(&self, guard: shuttle::sync::MutexGuard<'a, T>) -> shuttle::sync::MutexGuard<'a, T> {
        self.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    fn waited_for(
        &self,
        guard: shuttle::sync::MutexGuard<'a, T>,
        timeout: Duration,
    ) -> shuttle::sync::MutexGuard<'a, T> {
        self.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The value of `mutex`, locked.
pub fn lock<M: Lock + ?Sized>(mutex: &M) -> M::Guard<'_> {
    mutex.locked()
}

/// Waits for a notification of `changed`. Meanwhile `guard` is unlocked.
pub fn wait<C: Wait<G>, G>(changed: &C, guard: G) -> G {
    changed.waited(guard)
}

/// Waits as [`wait`] does, no longer than `timeout`.
pub fn wait_timeout<C: Wait<G>, G>(changed: &C, guard: G, timeout: Duration) -> G {
    changed.waited_for(guard, timeout)
}
