//! A semaphore over ranks: runs of many ranks wait for each other instead of starving each other until deadlines pass.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

use sync::{lock, wait};

/// Ranks that run at a time in a process, and ranks of the largest layout that is compared.
pub const MAX_RANKS: usize = 16;

/// Places for ranks, taken in the order of asking.
#[derive(Debug)]
pub struct RankSlots {
    capacity: usize,
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug)]
struct Line {
    free: usize,
    next_ticket: u64,
    now_served: u64,
}

impl RankSlots {
    /// Places for `capacity` ranks at a time.
    pub fn new(capacity: usize) -> RankSlots {
        let line = Line { free: capacity, next_ticket: 0, now_served: 0 };
        RankSlots { capacity, line: Mutex::new(line), moved: Condvar::new() }
    }

    /// The places of this process, which all its runs share as they share its cores.
    pub fn of_this_process() -> &'static RankSlots {
        static SLOTS: OnceLock<RankSlots> = OnceLock::new();
        SLOTS.get_or_init(|| RankSlots::new(MAX_RANKS))
    }

    /// Waits until `ranks` places are free and all who asked before are served. A run of more ranks than there are
    /// places gets all of them.
    pub fn take(&self, ranks: usize) -> Taken<'_> {
        let ranks = ranks.min(self.capacity);
        let mut line = self.line();
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        while line.now_served != ticket || line.free < ranks {
            line = wait(&self.moved, line);
        }
        line.now_served += 1;
        line.free -= ranks;
        self.moved.notify_all();
        Taken { slots: self, ranks }
    }

    /// No code panics while it holds the lock, so a poisoned line is as good as any.
    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }
}

/// Places that are free again when this is dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    slots: &'a RankSlots,
    ranks: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.slots.line().free += self.ranks;
        self.slots.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn never_more_ranks_than_places() {
        let (slots, running) = (RankSlots::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for ranks in [1, 2, 4, 3, 1, 9, 2, 4] {
                let (slots, running) = (&slots, &running);
                scope.spawn(move || {
                    let taken = slots.take(ranks);
                    let places = ranks.min(4);
                    assert!(running.fetch_add(places, Ordering::SeqCst) + places <= 4);
                    std::thread::yield_now();
                    running.fetch_sub(places, Ordering::SeqCst);
                    drop(taken);
                });
            }
        });
        assert_eq!(slots.line().free, 4);
    }
}
