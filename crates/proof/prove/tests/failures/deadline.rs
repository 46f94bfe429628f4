//! Waits end at their deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use comm::faults::{self, Faulty};
use mesh::Rank;

use crate::failures::faulty_engine::{Fault, faulty};
use crate::failures::rig::{eight_ranks, failure_of, threads, two_replicas};

/// Long enough for a step of these models on a busy machine, short enough for a test.
const DEADLINE: Duration = Duration::from_secs(1);

#[test]
fn whoever_waits_too_long_says_where_and_for_whom() {
    let setup = two_replicas();
    let fault = Fault::Sleeps(DEADLINE + Duration::from_secs(1));
    let engine = faulty(threads(&setup, DEADLINE), Rank(1), 200, fault);
    let failure = failure_of(&setup, &engine);
    assert_eq!(failure.rank, Rank(0), "rank 1 sleeps, so rank 0 is the one that tells");
    assert!(failure.cause.starts_with("rank 0 waited ") && failure.cause.contains(" ms for rank 1 in "), "{failure}");
    let arrow = failure.excerpt.lines().find(|line| line.contains("-->")).expect("an arrow");
    assert!(arrow.ends_with("reduce gradients of head") || arrow.contains("reduce gradients"), "{failure}");
    assert!(failure.excerpt.lines().count() >= 4, "the program around it: {failure}");
}

/// A message that never arrives, whichever it is, ends the run of all eight ranks.
#[test]
fn a_lost_message_is_no_hang() {
    let setup = eight_ranks();
    // Messages of the start, of the first step, of a later one; to the neighbours along each axis.
    for (from, to, nth) in [(0, 1, 0), (0, 2, 30), (1, 5, 4), (6, 7, 90)] {
        let rank = AtomicUsize::new(0);
        let engine = threads(&setup, DEADLINE).wrapped(|transport| {
            if rank.fetch_add(1, Ordering::Relaxed) == from {
                return Arc::new(Faulty::new(transport, faults::Fault::Drop { to: Rank(to), nth }));
            }
            transport
        });
        let failure = failure_of(&setup, &engine);
        assert!(failure.cause.contains(" waited ") || failure.cause.contains("programs differ"), "{failure}");
    }
}
