//! Locks that stay usable after a panic.
//!
//! A panic on one thread ends a run with its own message. The lock that this thread held stays usable, so that other
//! threads do not panic as well and hide that message: they continue with the value as it is. Every value in a mutex of
//! this workspace is valid after each statement.

#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The value of `mutex`, locked.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a mutex that nobody else has.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification of `changed`, which may come without cause. Meanwhile `guard` is unlocked.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// As [`wait`], no longer than `timeout`.
pub fn wait_timeout<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outlives_a_panic_of_its_owner() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut value = lock(&mutex);
                *value = 2;
                panic!("with the lock held");
            });
            thread.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        let guard = wait_timeout(&Condvar::new(), lock(&mutex), Duration::ZERO);
        assert_eq!(*guard, 2);
        drop(guard);
        assert_eq!(into_inner(mutex), 2);
    }
}
