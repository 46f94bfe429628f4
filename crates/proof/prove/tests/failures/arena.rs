//! A rank whose arena cannot be had.

use device::{ArenaSize, DeviceError, Numerics};
use mesh::Rank;
use train::{Engine, EngineDescription, RankEngine, ThreadEngine};

use crate::failures::rig::{NEVER, eight_ranks, failure_of, threads};

/// One rank asks for more than any address space has.
struct Greedy(ThreadEngine);

impl Engine for Greedy {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        self.0.open(rank, if rank == Rank(4) { ArenaSize::of_device(1 << 60) } else { size }, numerics)
    }

    fn ranks(&self) -> Vec<Rank> {
        self.0.ranks()
    }

    fn describe(&self) -> EngineDescription {
        self.0.describe()
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.0.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.0.failure()
    }
}

#[test]
fn an_arena_that_does_not_fit_is_told_with_its_size_and_what_needs_less() {
    let setup = eight_ranks();
    let told = failure_of(&setup, &Greedy(threads(&setup, NEVER))).to_string();
    assert_eq!(
        told,
        "rank 4 failed before the first step: cannot allocate an arena of 1152921504606846976 bytes for one rank; \
         a smaller parallelism.microbatch_size, more ranks or a higher parallelism.zero need less, and \
         `ulimit -v unlimited` lifts a limit of address space"
    );
}
