//! The memory that a thread holds: an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and the most since it began to watch.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
    /// Bytes that this thread has asked for.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that is being torn down has no counter left.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now + bytes;
        held.set((now, most.max(now)));
    });
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + usize::try_from(bytes).unwrap_or(0)));
}

/// All bytes that this thread asks for during `work`, also those that it gives back.
pub fn all_taken<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = TAKEN.get();
    let result = work();
    (result, TAKEN.get() - before)
}

/// The most bytes that this thread has held during `work`, beyond those of its beginning.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(|held| {
        let (now, _) = held.get();
        held.set((now, now));
        now
    });
    let result = work();
    let most = HELD.with(|held| held.get().1);
    (result, usize::try_from(most - before).expect("no less than at the beginning"))
}

// SAFETY: every call is passed on to the system's allocator with its own arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's obligation is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller's obligation is the same.
        unsafe { System.realloc(address, layout, new_size) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's obligation is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
