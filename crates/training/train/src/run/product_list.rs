//! The products of a run for a library, found before it starts: its programs run for a step on devices that compute
//! nothing.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use cuda::{BlocksProduct, KernelProduct, StreamProduct};
use device::{ArenaSize, Device, DeviceError, Numerics, Op, Stream, Tensor, forward_order};
use mesh::{Axis, Rank};
use sync::lock;

use crate::engine::meta_engine::MetaEngine;
use crate::engine::{Engine, EngineDescription, RankEngine};
use crate::ranks::failure::TrainError;
use crate::run::observer::{Observer, StepReport};
use crate::run::{Ports, run_ranks};
use crate::setup::Setup;
use crate::wish::Wish;
use crate::worker::batch::TokenSource;

/// The products of the first step as a library takes them, in no order, each once.
///
/// # Errors
/// Programs that do not run.
pub fn library_products(setup: &Setup, tokens: &dyn TokenSource) -> Result<Vec<StreamProduct>, TrainError> {
    noted(setup, tokens, |op, stream, noted| noted.extend(op.unfused().filter_map(|op| StreamProduct::of(&op, stream))))
}

/// The products of the first step as pleach's kernels take them, in no order, each once.
///
/// # Errors
/// Programs that do not run.
pub fn kernel_products(setup: &Setup, tokens: &dyn TokenSource) -> Result<Vec<KernelProduct>, TrainError> {
    noted(setup, tokens, |op, _, noted| noted.extend(KernelProduct::of(op)))
}

/// The products of the first step as both take them, in no order, each once.
///
/// # Errors
/// Programs that do not run.
pub fn blocks_products(setup: &Setup, tokens: &dyn TokenSource) -> Result<Vec<BlocksProduct>, TrainError> {
    noted(setup, tokens, |op, stream, noted| noted.extend(BlocksProduct::of(op, stream)))
}

/// All that `note` notes of operations of the first step, in no order, each once. Data- and tensor-parallel peers have
/// the same ones, so one rank of each pipeline coordinate stands for them.
fn noted<K: Copy + Eq + Hash + Send + 'static>(
    setup: &Setup,
    tokens: &dyn TokenSource,
    note: Note<K>,
) -> Result<Vec<K>, TrainError> {
    let noted = Arc::new(Mutex::new(HashSet::new()));
    let engine = NotingEngine { inner: MetaEngine::new(setup.groups()), noted: Arc::clone(&noted), note };
    let is_first = |rank: &Rank| {
        let coord = setup.mesh.coord(*rank);
        [Axis::DpOuter, Axis::DpInner, Axis::Tp, Axis::Cp].into_iter().all(|axis| coord.along(axis) == 0)
    };
    let ranks: Vec<Rank> = setup.mesh.ranks().filter(is_first).collect();
    let mut first_step = setup.clone();
    first_step.train.steps = first_step.train.steps.min(1);
    run_ranks(&first_step, &engine, Ports::new(tokens, &Unheard), ranks.into_iter())?;
    let products = std::mem::take(&mut *lock(&noted));
    Ok(products.into_iter().collect())
}

/// Hears nothing.
struct Unheard;

impl Observer for Unheard {
    fn step(&self, _report: &StepReport) -> Wish {
        Wish::Continue
    }
}

type Noted<K> = Arc<Mutex<HashSet<K>>>;

/// Adds what there is to note of an operation.
type Note<K> = fn(&Op, Stream, &mut HashSet<K>);

/// Ranks that note their products.
struct NotingEngine<K> {
    inner: MetaEngine,
    noted: Noted<K>,
    note: Note<K>,
}

impl<K: Send + 'static> Engine for NotingEngine<K> {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let RankEngine { device, memory, communicators } = self.inner.open(rank, size, numerics)?;
        let device = Box::new(NotingDevice { inner: device, noted: Arc::clone(&self.noted), note: self.note });
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

struct NotingDevice<K> {
    inner: Box<dyn Device>,
    noted: Noted<K>,
    note: Note<K>,
}

impl<K: Send> Device for NotingDevice<K> {
    /// Nothing is kept of other operations.
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        (self.note)(op, stream, &mut lock(&self.noted));
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
