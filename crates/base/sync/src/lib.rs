//! Locks that stay usable after a panic.
//!
//! A panic on one thread ends a run with its own message. The lock that this thread held stays usable, so that other
//! threads do not panic as well and hide that message: they continue with the value as it is. Every value in a mutex of
//! this workspace is valid after each statement.
//!
//! Files whose threads are modelled take their primitives from here. In every build of the product these are the
//! standard library's; with `--cfg shuttle` they are those of shuttle, which runs tests in many orders of threads
//! (`tools/check-threads.sh models`).

#![forbid(unsafe_code)]

#[cfg(shuttle)]
mod modelled;
mod starting;

pub use starting::{NoThread, start, start_scoped};

#[cfg(shuttle)]
pub use modelled::{Lock, Wait, lock, wait, wait_timeout};
#[cfg(shuttle)]
pub use shuttle;
#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
#[cfg(shuttle)]
pub use shuttle::thread;

#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
#[cfg(not(shuttle))]
pub use std::thread;

use std::sync::PoisonError;

/// The value of `mutex`, locked.
#[cfg(not(shuttle))]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a mutex that nobody else has.
pub fn into_inner<T>(mutex: std::sync::Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification of `changed`, which may come without cause. Meanwhile `guard` is unlocked.
#[cfg(not(shuttle))]
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits as [`wait`] does, no longer than `timeout`.
#[cfg(not(shuttle))]
pub fn wait_timeout<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: std::time::Duration,
) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

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
