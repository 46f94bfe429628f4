//! An engine whose ranks are opened otherwise: how tests inject faults below the executor, never by a switch in it.

use device::{ArenaSize, DeviceError, Numerics};
use mesh::{Coord, Rank};
use train::{Engine, EngineDescription, RankEngine, Setup};

use crate::layout::engine;

/// Changes what a rank at a place in the mesh runs on. Called once per rank, on the rank's own thread.
pub type WrapRank<'a> = dyn Fn(Coord, RankEngine) -> RankEngine + Sync + 'a;

/// Opens a rank of the inner engine, on the rank's own thread.
type OpenRank<'a> = dyn Fn(&dyn Engine, Rank, ArenaSize, Numerics) -> Result<RankEngine, DeviceError> + Sync + 'a;

/// Ranks of an engine, each opened by a closure.
pub struct WrappedEngine<'a> {
    inner: Box<dyn Engine + 'a>,
    open: Box<OpenRank<'a>>,
}

impl<'a> WrappedEngine<'a> {
    /// Threads for the ranks of `setup`; `wrap` says what each of them runs on.
    pub fn new(setup: &Setup, wrap: &'a WrapRank<'a>) -> WrappedEngine<'a> {
        WrappedEngine::with_threads(setup, 1, wrap)
    }

    /// Returns the same as [`WrappedEngine::new`], with `threads_per_rank` threads that compute for each rank.
    pub fn with_threads(setup: &Setup, threads_per_rank: usize, wrap: &'a WrapRank<'a>) -> WrappedEngine<'a> {
        WrappedEngine::around(engine(setup, threads_per_rank), setup, wrap)
    }

    /// The ranks of `inner`, which has those of `setup`.
    pub fn around(inner: Box<dyn Engine>, setup: &Setup, wrap: &'a WrapRank<'a>) -> WrappedEngine<'a> {
        let mesh = setup.mesh;
        WrappedEngine::opened_by(inner, move |inner, rank, size, numerics| {
            Ok(wrap(mesh.coord(rank), inner.open(rank, size, numerics)?))
        })
    }

    /// The ranks of `inner`, each opened by `open`.
    pub fn opened_by(
        inner: Box<dyn Engine + 'a>,
        open: impl Fn(&dyn Engine, Rank, ArenaSize, Numerics) -> Result<RankEngine, DeviceError> + Sync + 'a,
    ) -> WrappedEngine<'a> {
        WrappedEngine { inner, open: Box::new(open) }
    }
}

impl Engine for WrappedEngine<'_> {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        (self.open)(&*self.inner, rank, size, numerics)
    }

    fn ranks(&self) -> Vec<Rank> {
        self.inner.ranks()
    }

    fn describe(&self) -> EngineDescription {
        self.inner.describe()
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.inner.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.inner.failure()
    }
}
