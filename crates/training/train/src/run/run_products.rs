//! The products of a run, found before it starts: its programs run for a step on devices that compute nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use cuda::RunProduct;
use device::{ArenaSize, Device, DeviceError, Numerics, Op, Stream, Tensor, forward_order};
use mesh::{Axis, Rank};
use sync::lock;

use crate::engine::meta_engine::MetaEngine;
use crate::engine::{Engine, EngineDescription, RankEngine};
use crate::ranks::failure::TrainError;
use crate::run::observer::{Observer, StepReport};
use crate::run::{Ports, run_ranks};
use crate::setup::Setup;
use crate::stop_request::StopRequest;
use crate::worker::batch::TokenSource;

/// The products of the first step, in no order, each once. Data- and tensor-parallel peers have the same ones, so one
/// rank of each pipeline coordinate stands for them.
///
/// # Errors
/// Programs that do not run.
pub fn run_products(setup: &Setup, tokens: &dyn TokenSource) -> Result<Vec<RunProduct>, TrainError> {
    let recorded = RecordedProducts::default();
    let engine = RecordingEngine { inner: MetaEngine::new(setup.groups()), recorded: Arc::clone(&recorded) };
    let is_first = |rank: &Rank| {
        let coord = setup.mesh.coord(*rank);
        [Axis::DpOuter, Axis::DpInner, Axis::Tp, Axis::Cp].into_iter().all(|axis| coord.along(axis) == 0)
    };
    let ranks: Vec<Rank> = setup.mesh.ranks().filter(is_first).collect();
    let mut first_step = setup.clone();
    first_step.train.steps = first_step.train.steps.min(1);
    run_ranks(&first_step, &engine, Ports::new(tokens, &QuietObserver), ranks.into_iter())?;
    let products = std::mem::take(&mut *lock(&recorded));
    Ok(products.into_iter().collect())
}

/// Ignores all events.
struct QuietObserver;

impl Observer for QuietObserver {
    fn step(&self, _report: &StepReport) -> StopRequest {
        StopRequest::None
    }
}

type RecordedProducts = Arc<Mutex<HashSet<RunProduct>>>;

/// An engine whose ranks record their products.
struct RecordingEngine {
    inner: MetaEngine,
    recorded: RecordedProducts,
}

impl Engine for RecordingEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let RankEngine { device, memory, communicators } = self.inner.open(rank, size, numerics)?;
        let device = Box::new(RecordingDevice { inner: device, recorded: Arc::clone(&self.recorded) });
        Ok(RankEngine { device, memory, communicators })
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

struct RecordingDevice {
    inner: Box<dyn Device>,
    recorded: RecordedProducts,
}

impl Device for RecordingDevice {
    /// Nothing is kept of other operations.
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        lock(&self.recorded).extend(RunProduct::of(op, stream));
        Ok(())
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }

    forward_order!(inner);
}
