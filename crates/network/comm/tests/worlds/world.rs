//! Running a function on every rank of a world.

use super::wire::{Wire, processes};
use comm::{AbortCause, Timeouts, Transport};
use mesh::Rank;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The message of a panic that ended a rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rank} panicked: {message}")]
pub struct RankPanic {
    /// The rank that panicked.
    pub rank: Rank,
    /// The panic's message.
    pub message: String,
}

/// Runs `body` on one thread per rank and returns what each rank returned, by rank.
///
/// A rank that panics aborts the world with the panic's message, so that no other rank waits for it.
pub fn run_world<T: Send>(
    wire: Wire,
    world_size: usize,
    timeouts: Timeouts,
    body: impl Fn(Arc<dyn Transport>) -> T + Sync,
) -> Vec<Result<T, RankPanic>> {
    let body = &body;
    std::thread::scope(|scope| {
        let spawn = |transport: Arc<dyn Transport>| {
            scope.spawn(move || {
                let rank = transport.rank();
                let shared = Arc::clone(&transport);
                catch_unwind(AssertUnwindSafe(|| body(shared))).map_err(|payload| {
                    let message = panic_message(&*payload);
                    transport.abort(AbortCause { rank, description: format!("panicked: {message}") });
                    RankPanic { rank, message }
                })
            })
        };
        let mut ends: Vec<_> = processes(wire, world_size, timeouts).into_iter().flatten().collect();
        ends.sort_by_key(|end| end.rank());
        let threads: Vec<_> = ends.into_iter().map(spawn).collect();
        let join = |(rank, thread): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
            thread.join().unwrap_or_else(|payload| {
                let message = panic_message(&*payload);
                let rank = Rank(rank);
                Err(RankPanic { rank, message })
            })
        };
        threads.into_iter().enumerate().map(join).collect()
    })
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text =
        (payload.downcast_ref::<&str>().copied()).or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
