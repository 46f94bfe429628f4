//! Twelve layouts of a small model on this machine: predicted, and run.

use std::sync::Mutex;
use std::time::Duration;

use cluster::Cluster;
use comm::Timeouts;
use config::{Overlap, RunConfig};
use cpu::gemm::PackingBuffers;
use mesh::{Axis, Rank};
use program::{Extent, RankPlan, plan_memory};
use sync::lock;
use train::{
    Engine, EngineOptions, Observer, Ports, RunDevice, SequenceBuffers, Setup, SetupError, StepReport, TokenSource,
    TrainError, Wish, open_engine, queued_streams, run,
};

use crate::machine::resident::{peak_bytes, resident_bytes, restart_peak};
use crate::machine::stained::{LINE_BYTES, StainedEngine};
use crate::prediction::PreparedStep;

/// Settings of all runs, over the defaults of a run file.
pub const SMALL_MODEL: [&str; 9] = [
    "model.num_layers=2",
    "model.hidden=256",
    "model.num_heads=4",
    "model.context=128",
    "model.vocabulary=1024",
    "model.dropout=0.0",
    "train.sequence_length=128",
    "train.global_batch=8",
    "train.steps=8",
];

/// Names with the keys of `[parallelism]` that they set; two ranks at most, one for each of two cores.
pub const LAYOUTS: [Layout; 12] = [
    ("one rank", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=4"]),
    ("one rank, small microbatches", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=1"]),
    ("one rank, full recomputation", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=4", "recompute=full"]),
    ("dp 2", &["dp=2", "tp=1", "pp=1", "zero=0", "microbatch_size=2"]),
    ("dp 2, ZeRO 1", &["dp=2", "tp=1", "pp=1", "zero=1", "microbatch_size=2"]),
    ("dp 2, ZeRO 2", &["dp=2", "tp=1", "pp=1", "zero=2", "microbatch_size=2"]),
    ("dp 2, ZeRO 3", &["dp=2", "tp=1", "pp=1", "zero=3", "microbatch_size=2"]),
    ("tp 2", &["dp=1", "tp=2", "pp=1", "zero=0", "microbatch_size=2"]),
    ("tp 2, sequence parallel", &["dp=1", "tp=2", "pp=1", "zero=0", "microbatch_size=2", "sequence_parallel=true"]),
    ("pp 2, 1F1B", &["dp=1", "tp=1", "pp=2", "zero=0", "microbatch_size=2"]),
    ("pp 2, GPipe", &["dp=1", "tp=1", "pp=2", "zero=0", "microbatch_size=2", "schedule=gpipe"]),
    ("pp 2, ZB-H1", &["dp=1", "tp=1", "pp=2", "zero=0", "microbatch_size=2", "schedule=zb-h1"]),
];

/// Steps that bring the machine to its speed; the others are measured.
const WARM_UP: usize = 3;

/// A layout: its name, and the keys of `[parallelism]` that it sets.
pub type Layout = (&'static str, &'static [&'static str]);

/// Why a layout was not measured.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Its keys make no run.
    #[error("{0}")]
    Keys(String),
    /// It cannot be planned.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// It failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// Predictions for a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Seconds of a step.
    pub step_s: f64,
    /// The arena of each rank.
    pub arenas: Vec<PlannedArena>,
}

/// Arenas and packing buffers are on pages of this size where the system has them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Predicted {
    /// Bytes by which the process grows: for each rank its arena and the buffers into which it packs operands of
    /// products, in huge pages.
    pub fn resident_bytes(&self) -> usize {
        let pages = |bytes: usize| bytes.next_multiple_of(HUGE_PAGE_BYTES);
        self.arenas.iter().map(|arena| pages(arena.size_bytes) + pages(PackingBuffers::BYTES)).sum()
    }
}

/// The arena of one rank, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedArena {
    pub size_bytes: usize,
    /// Lines in which some value has its place at some time; the others are gaps between values.
    pub used_bytes: usize,
}

impl PlannedArena {
    /// Result of `plan`.
    pub fn of(plan: &RankPlan) -> PlannedArena {
        let values = plan.lives().iter().map(|life| life.extent).chain(plan.state().iter().map(|(_, extent)| *extent));
        let mut places: Vec<Extent> = values.chain([plan.scratch()]).collect();
        places.sort_unstable_by_key(|place| place.offset_bytes);
        let (mut used_bytes, mut end) = (0, 0);
        for Extent { offset_bytes, len_bytes } in places {
            let place_end = offset_bytes + len_bytes.next_multiple_of(LINE_BYTES);
            used_bytes += place_end.saturating_sub(end.max(offset_bytes));
            end = end.max(place_end);
        }
        PlannedArena { size_bytes: plan.host_bytes() + plan.arena_bytes(), used_bytes }
    }
}

/// Measurements of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Seconds of a step, the median of five.
    pub step_s: f64,
    /// Bytes that each rank wrote in its arena and past its end, in whole lines.
    pub written_bytes: Vec<usize>,
    /// Bytes of the process that were resident before the ranks began, where the system says it.
    pub before_bytes: Option<usize>,
    /// The most that were resident while they ran.
    pub peak_bytes: Option<usize>,
}

/// A run of the small model.
fn config(layout: Layout) -> Result<RunConfig, RunError> {
    let (name, keys) = layout;
    let own = keys.iter().map(|key| format!("parallelism.{key}"));
    let overrides: Vec<String> = SMALL_MODEL.iter().map(|key| key.to_string()).chain(own).collect();
    RunConfig::load(name, "", &overrides).map_err(|problems| {
        RunError::Keys(problems.iter().map(|problem| format!("{name}: {problem}")).collect::<Vec<_>>().join("\n"))
    })
}

/// The step of a layout, to be timed on any profile.
///
/// # Errors
/// See [`RunError`].
pub fn prepared(layout: Layout) -> Result<PreparedStep, RunError> {
    let RunConfig { model, parallelism, train, .. } = config(layout)?;
    Ok(PreparedStep::new(&model, &parallelism, &train, None)?)
}

/// Predicts a layout on `cluster`, the profile of this machine.
///
/// # Errors
/// See [`RunError`].
pub fn predict(cluster: &Cluster, layout: Layout) -> Result<Predicted, RunError> {
    let parallelism = config(layout)?.parallelism;
    let step = prepared(layout)?;
    let mesh = parallelism.mesh().map_err(SetupError::from)?;
    let plan = plan_memory(&step.graph, &step.sizes, Overlap::Off);
    let stage = |rank| mesh.coord(Rank(rank)).along(Axis::Pp);
    let arenas = (0..mesh.world_size()).map(|rank| PlannedArena::of(&plan.ranks[stage(rank)])).collect();
    Ok(Predicted { step_s: step.on(cluster)?.step_ns() as f64 * 1e-9, arenas })
}

/// Runs a layout in this process: once for its time and its resident memory, and once more with stained arenas.
///
/// # Errors
/// See [`RunError`].
pub fn run_layout(layout: Layout) -> Result<Measured, RunError> {
    let RunConfig { model, parallelism, train, .. } = config(layout)?;
    let tokens = Counting { vocabulary: model.vocabulary };
    let setup = Setup::new(model, parallelism, train)?;
    let walls = Walls::default();
    restart_peak();
    let before_bytes = resident_bytes();
    run(&setup, &*engine(&setup), Ports::new(&tokens, &walls))?;
    let peak_bytes = peak_bytes();
    let stained = StainedEngine::new(engine(&setup), setup.mesh.world_size());
    run(&setup, &stained, Ports::new(&tokens, &Walls::default()))?;
    let written_bytes = stained.written_bytes();
    Ok(Measured { step_s: walls.median_s().unwrap_or_default(), written_bytes, before_bytes, peak_bytes })
}

fn engine(setup: &Setup) -> Box<dyn Engine> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let timeouts = Timeouts::new(Duration::from_secs(60)).scaled(setup.mesh.world_size(), cores);
    let queued = queued_streams(&setup.parallelism);
    let options = EngineOptions { timeouts, queued, threads_per_rank: 1, library: None };
    open_engine(setup.groups(), options, &RunDevice::Cpu)
}

/// Wall times of steps.
#[derive(Default)]
struct Walls(Mutex<Vec<Duration>>);

impl Walls {
    fn median_s(&self) -> Option<f64> {
        let mut walls = lock(&self.0).split_off(WARM_UP);
        walls.sort_unstable();
        walls.get(walls.len() / 2).map(Duration::as_secs_f64)
    }
}

impl Observer for Walls {
    fn step(&self, report: &StepReport) -> Wish {
        lock(&self.0).push(report.wall);
        Wish::Continue
    }
}

/// Tokens that count; what they are changes no time.
struct Counting {
    vocabulary: usize,
}

impl TokenSource for Counting {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        let SequenceBuffers { tokens, labels, positions, visible } = buffers;
        let token = |place: usize| ((u64::from(step) + sequence + 7 * place as u64) % self.vocabulary as u64) as i32;
        for place in 0..tokens.len() {
            (tokens[place], labels[place], positions[place]) = (token(place), token(place + 1), place as i32);
            (visible[2 * place], visible[2 * place + 1]) = (0, place as i32 + 1);
        }
    }
}
