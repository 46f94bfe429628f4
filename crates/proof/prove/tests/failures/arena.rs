//! A rank whose arena cannot be had.

use device::ArenaSize;
use mesh::Rank;
use testkit::wrapped_engine::WrappedEngine;

use crate::failures::rig::{NEVER, eight_ranks, failure_of, threads};

#[test]
fn an_arena_that_does_not_fit_is_told_with_its_size_and_what_needs_less() {
    let setup = eight_ranks();
    // One rank asks for more than any address space has.
    let greedy = WrappedEngine::opened_by(Box::new(threads(&setup, NEVER)), |inner, rank, size, numerics| {
        inner.open(rank, if rank == Rank(4) { ArenaSize::of_device(1 << 60) } else { size }, numerics)
    });
    let told = failure_of(&setup, &greedy).to_string();
    assert_eq!(
        told,
        "rank 4 failed before the first step: cannot allocate an arena of 1152921504606846976 bytes for one rank; \
         a smaller parallelism.microbatch_size, more ranks or a higher parallelism.zero need less, and \
         `ulimit -v unlimited` lifts a limit of address space"
    );
}
