//! An engine whose ranks are wrapped: how tests inject faults below the executor, never by a switch in it.

use config::Products;
use device::DeviceError;
use mesh::{Coord, Mesh, Rank};
use train::{Engine, RankEngine, Setup, ThreadEngine};

use crate::runner::thread_engine;

/// Changes what a rank at a place in the mesh runs on. Called once per rank, on the rank's own thread.
pub type WrapRank<'a> = dyn Fn(Coord, RankEngine) -> RankEngine + Sync + 'a;

/// Threads of this process, each rank's device and groups wrapped.
pub struct WrappedEngine<'a> {
    inner: ThreadEngine,
    mesh: Mesh,
    wrap: &'a WrapRank<'a>,
}

impl<'a> WrappedEngine<'a> {
    /// Threads for the ranks of `setup`; `wrap` says what each of them runs on.
    pub fn new(setup: &Setup, wrap: &'a WrapRank<'a>) -> WrappedEngine<'a> {
        WrappedEngine { inner: thread_engine(setup), mesh: setup.mesh, wrap }
    }

    /// The same engine with so many threads that compute for each rank.
    pub fn with_threads_per_rank(self, threads_per_rank: usize) -> WrappedEngine<'a> {
        WrappedEngine { inner: self.inner.with_threads_per_rank(threads_per_rank), ..self }
    }
}

impl Engine for WrappedEngine<'_> {
    fn open(&self, rank: Rank, arena_bytes: usize, products: Products) -> Result<RankEngine, DeviceError> {
        Ok((self.wrap)(self.mesh.coord(rank), self.inner.open(rank, arena_bytes, products)?))
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.inner.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.inner.failure()
    }
}
