//! Twelve layouts of a small model on this machine: predicted, and run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cluster::Cluster;
use comm::Timeouts;
use config::{Products, RunConfig};
use device::DeviceError;
use mesh::Rank;
use program::plan_memory;
use train::{
    Engine, Observer, Ports, RankEngine, SequenceBuffers, Setup, SetupError, StepReport, ThreadEngine, TokenSource,
    TrainError, Wish, run,
};

use crate::prediction::PreparedStep;
use crate::validate::Pair;

/// What all runs have in common, over the defaults of a run file.
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
pub const LAYOUTS: [(&str, &[&str]); 12] = [
    ("one rank", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=4"]),
    ("one rank, small microbatches", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=1"]),
    ("one rank, everything computed again", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=4", "recompute=full"]),
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

/// One layout.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineRun {
    /// Its name.
    pub name: &'static str,
    /// Seconds of a step; measured, the median of five.
    pub step_s: Pair<f64>,
    /// Bytes of the largest arena of a rank.
    pub arena_bytes: Pair<f64>,
}

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

/// Predicts each of `layouts` on `cluster`, the profile of this machine, and runs it.
///
/// # Errors
/// See [`RunError`].
pub fn run_layouts(
    cluster: &Cluster,
    layouts: &[(&'static str, &'static [&'static str])],
) -> Result<Vec<MachineRun>, RunError> {
    layouts.iter().map(|(name, keys)| run_layout(cluster, name, keys)).collect()
}

fn run_layout(cluster: &Cluster, name: &'static str, keys: &[&str]) -> Result<MachineRun, RunError> {
    let own = keys.iter().map(|key| format!("parallelism.{key}"));
    let overrides: Vec<String> = SMALL_MODEL.iter().map(|key| key.to_string()).chain(own).collect();
    let RunConfig { model, parallelism, train, .. } = RunConfig::load(name, "", &overrides).map_err(|problems| {
        RunError::Keys(problems.iter().map(|problem| format!("{name}: {problem}")).collect::<Vec<_>>().join("\n"))
    })?;
    let step = PreparedStep::new(&model, &parallelism, &train, None)?;
    let predicted_s = step.on(cluster)?.step_ns() as f64 * 1e-9;
    let plan = plan_memory(&step.graph, &step.sizes);
    let planned = plan.ranks.iter().map(|rank| rank.arena_bytes()).max().unwrap_or(0);
    let vocabulary = model.vocabulary;
    let setup = Setup::new(model, parallelism, train)?;
    let engine = Opened::new(&setup);
    let walls = Walls::default();
    run(&setup, &engine, Ports::new(&Counting { vocabulary }, &walls))?;
    Ok(MachineRun {
        name,
        step_s: Pair { measured: walls.median_s(), predicted: predicted_s },
        arena_bytes: Pair { measured: engine.largest(), predicted: planned as f64 },
    })
}

/// Threads that note how large the arenas are that they open.
struct Opened {
    engine: ThreadEngine,
    arenas: Mutex<BTreeMap<usize, usize>>,
}

impl Opened {
    fn new(setup: &Setup) -> Opened {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wait = Timeouts { wait: Duration::from_secs(60) }.scaled(setup.mesh.world_size(), cores);
        Opened { engine: ThreadEngine::new(setup.mesh, wait), arenas: Mutex::default() }
    }

    fn largest(&self) -> Option<f64> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        arenas.values().max().map(|bytes| *bytes as f64)
    }
}

impl Engine for Opened {
    fn open(&self, rank: Rank, arena_bytes: usize, products: Products) -> Result<RankEngine, DeviceError> {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).insert(rank.0, arena_bytes);
        self.engine.open(rank, arena_bytes, products)
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.engine.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.engine.failure()
    }
}

/// Wall times of steps.
#[derive(Default)]
struct Walls(Mutex<Vec<Duration>>);

impl Walls {
    fn median_s(&self) -> Option<f64> {
        let mut walls = self.0.lock().unwrap_or_else(PoisonError::into_inner).split_off(WARM_UP);
        walls.sort_unstable();
        walls.get(walls.len() / 2).map(Duration::as_secs_f64)
    }
}

impl Observer for Walls {
    fn step(&self, report: &StepReport) -> Wish {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(report.wall);
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
